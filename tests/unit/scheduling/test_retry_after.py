"""When callers that are refused shall return, and what is kept for them."""

from __future__ import annotations

from proxy.domain.errors import RateLimited
from proxy.scheduling.fair_queue import FairQueue
from proxy.scheduling.places import GRACE_S, KEPT, Places
from proxy.settings.streams import Scheduling
from tests.doubles.queued_stream import Clock, QueuedStream
from tests.fixtures.schedulers import ticket


class Row:
    """A queue whose streams take one second each."""

    def __init__(self, places: int) -> None:
        self.clock = Clock()
        self.queue = FairQueue(Scheduling(queue_length=places), self.clock)
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


def busy(places: int) -> Row:
    row = Row(places)
    for _ in range(200):
        row.enter()
        row.serve(1)
    return row


def test_a_place_is_free_at_the_time_that_was_told_and_was_not_far_earlier():
    row = busy(10)
    while not (retry_after_s := row.enter()):
        pass
    assert 1 <= retry_after_s < 6
    row.serve(int(retry_after_s))
    assert not row.enter()


def test_callers_are_told_different_times_and_all_are_admitted_in_time():
    row = busy(10)
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


def places(taken: int) -> Places:
    """Ten places, of which the tenant `a` has taken so many."""
    made = Places()
    made.most = 10
    for _ in range(taken):
        made.add(QueuedStream(ticket("a")), now=0.0)
    return made


def test_a_caller_that_comes_early_does_not_get_the_place_of_another_one():
    nine, eight = places(9), places(8)
    for each in (nine, eight):
        each.promise("a", 5.0)
    assert not nine.has_place("a", now=1.0)
    assert nine.has_place("few", now=1.0)  # a tenant with fewer streams need not wait for it
    assert eight.has_place("a", now=1.0)
    assert nine.has_place("a", now=5.0)
    eight.add(QueuedStream(ticket("a")), now=5.0)
    assert eight.has_place("a", now=1.0)  # nothing is promised any more


def test_a_promise_lapses_and_half_of_the_places_are_never_kept():
    four, five, nine = places(4), places(5), places(9)
    for each in (four, five, nine):
        for time in range(40):
            each.promise("a", 100.0 + time)
    assert four.has_place("a", now=1.0)
    assert not five.has_place("a", now=1.0)
    assert nine.has_place("a", now=140.0 + GRACE_S)
    for time in range(1_000):
        nine.promise("a", 200.0 + time)
    assert nine.promised("a", now=140.0 + GRACE_S) <= KEPT * 10


def test_without_rows_the_time_is_finite():
    row = Row(0)
    row.queue.set_capacity(0)
    assert 0 < row.enter() < 100
