"""When callers that are refused shall return, and what is kept for them."""

from __future__ import annotations

import pytest

from proxy.domain.errors import RateLimited
from proxy.scheduling.fair_queue import FairQueue
from proxy.scheduling.places import GRACE_S, Promises, QueueLimits
from proxy.scheduling.service_rate import START_S, ServiceRate
from tests.doubles.queued_stream import Clock, QueuedStream
from tests.fixtures.schedulers import ticket


class Row:
    """A queue whose streams take one second each."""

    def __init__(self, **limits: int) -> None:
        self.clock = Clock()
        self.queue = FairQueue(QueueLimits(**limits), self.clock)
        self.queue.set_capacity(1)
        self.running: list[QueuedStream] = []

    def enter(self, tenant: str = "a") -> float:
        """0, or when to return."""
        row = self

        class Noted(QueuedStream):
            __slots__ = ()

            def granted(self) -> None:
                row.running.append(self)

        try:
            self.queue.enter(Noted(ticket(tenant)))
        except RateLimited as error:
            return error.retry_after_s
        return 0.0

    def serve(self, seconds: int) -> None:
        for _ in range(seconds):
            self.clock.now += 1
            if self.running:
                self.queue.release(self.running.pop(0))


def busy(**limits: int) -> Row:
    row = Row(**limits)
    for _ in range(200):
        row.enter()
        row.serve(1)
    return row


def test_a_place_is_free_at_the_time_that_was_told_and_was_not_far_earlier():
    row = busy(waiting_per_tenant=10)
    while not (retry_after_s := row.enter()):
        pass
    assert 1 <= retry_after_s < 6
    row.serve(int(retry_after_s))
    assert not row.enter()


def test_callers_are_told_different_times_and_all_are_admitted_in_time():
    row = busy(waiting_per_tenant=10)
    while not (first_s := row.enter()):
        pass
    began = row.clock.now
    told = [began + first_s] + [began + row.enter() for _ in range(9)]
    assert told == sorted(told)
    assert told[9] - told[0] > 8
    for time in told:
        while row.clock.now + 1 <= time:
            row.serve(1)
        row.clock.now = time
        assert not row.enter()


def test_a_caller_that_comes_early_does_not_get_the_place_of_another_one():
    promises = Promises(10)
    promises.add(5.0)
    assert not promises.has_place(9, now=1.0)
    assert promises.has_place(8, now=1.0)
    assert promises.has_place(9, now=5.0)
    promises.keep(5.0)
    assert promises.has_place(9, now=5.0)  # nothing is promised any more


def test_a_promise_lapses_and_half_of_the_places_are_never_kept():
    promises = Promises(10)
    for time in range(40):
        promises.add(100.0 + time)
    assert promises.has_place(4, now=1.0)
    assert not promises.has_place(5, now=1.0)
    assert promises.has_place(9, now=140.0 + GRACE_S)
    for time in range(1_000):
        promises.add(200.0 + time)
    assert len(promises._times) <= 40


def test_the_time_of_a_stream_is_measured_with_those_that_still_run():
    rate = ServiceRate(0.0)
    assert rate.stream_s(0.0) == START_S
    rate.running(4, 0.0)
    for _ in range(50):
        rate.end(tokens=10)
    assert rate.stream_s(25.0) == pytest.approx(2.0, rel=0.1)  # 100 s of rows, 50 streams
    assert rate.stream_tokens() == 10
    assert rate.wait_s(8, rows=4, now=25.0) == pytest.approx(4.0, rel=0.1)
    assert rate.surely_s(8, rows=4, now=25.0) > 6
    assert rate.stream_s(1_000.0) > 70  # nothing ends any more


def test_without_rows_the_time_is_finite():
    row = Row(waiting_per_tenant=0)
    row.queue.set_capacity(0)
    assert 0 < row.enter() < 100
