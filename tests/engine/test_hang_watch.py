"""HangWatch: time without progress counts only while requests are in flight."""

from __future__ import annotations

from trtllm.hang_watch import HangWatch


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def test_it_hangs_after_the_limit_without_progress():
    clock = Clock()
    watch = HangWatch(300, clock)
    clock.now_s += 300
    assert not watch.is_hung(in_flight=1)
    clock.now_s += 0.1
    assert watch.is_hung(in_flight=1)


def test_progress_starts_the_count_again():
    clock = Clock()
    watch = HangWatch(300, clock)
    for _ in range(10):
        clock.now_s += 299
        watch.progressed()
        assert not watch.is_hung(in_flight=3)
    assert watch.stalled_s(in_flight=3) == 0


def test_idle_time_does_not_count():
    clock = Clock()
    watch = HangWatch(300, clock)
    clock.now_s += 10_000
    assert not watch.is_hung(in_flight=0)
    clock.now_s += 200  # a request has come in the meantime
    assert watch.stalled_s(in_flight=1) == 200
    assert not watch.is_hung(in_flight=1)


def test_requests_that_are_cancelled_while_it_hangs_add_up():
    """A proxy gives up after STALL_TIMEOUT_S, 120 s by default."""
    clock = Clock()
    watch = HangWatch(300, clock)
    for _ in range(2):
        clock.now_s += 120
        assert not watch.is_hung(in_flight=1)
        clock.now_s += 3600
        assert not watch.is_hung(in_flight=0)
    clock.now_s += 61
    assert watch.is_hung(in_flight=1)


def test_a_further_request_does_not_start_the_count_again():
    clock = Clock()
    watch = HangWatch(300, clock)
    clock.now_s += 200
    assert not watch.is_hung(in_flight=1)
    clock.now_s += 101
    assert watch.is_hung(in_flight=2)


def test_without_a_limit_nothing_hangs_but_the_time_is_measured():
    clock = Clock()
    watch = HangWatch(0, clock)
    clock.now_s += 100_000
    assert not watch.is_hung(in_flight=1)
    assert watch.stalled_s(in_flight=1) == 100_000
