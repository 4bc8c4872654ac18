"""A tenant below its share of the rows takes one of a tenant above it, and none of both again."""

from __future__ import annotations

import pytest

from proxy.domain.scheduling import Ticket
from proxy.scheduling.fair_queue import FairQueue
from proxy.scheduling.stream import State
from proxy.settings.streams import Scheduling
from tests.doubles.queued_stream import Clock, QueuedStream


class Rows:
    """A queue with so many of them."""

    def __init__(self, rows: int, *, fair_preemption: bool = True) -> None:
        self.clock = Clock()
        self.queue = FairQueue(Scheduling(fair_preemption=fair_preemption), self.clock)
        self.queue.set_capacity(rows)

    def enter(self, tenant: str, count: int = 1, **fields: object) -> list[QueuedStream]:
        fields = {"may_yield": True, **fields}
        streams = [QueuedStream(Ticket(queue="q", tenant=tenant, **fields)) for _ in range(count)]
        for stream in streams:
            self.queue.enter(stream)
        return streams


def preempted(streams: list[QueuedStream]) -> list[bool]:
    return [stream.was_preempted for stream in streams]


def running(streams: list[QueuedStream]) -> int:
    return sum(each.state is State.RUNNING and not each.is_yielding for each in streams)


def test_a_tenant_takes_its_share_of_the_newest_streams_and_not_more():
    rows = Rows(4)
    large = rows.enter("large", 10)
    small = rows.enter("small", 3)
    assert preempted(large)[:4] == [False, False, True, True]
    assert (running(large), running(small)) == (2, 2)
    assert small[2].state is State.WAITING


def test_the_tenant_that_gave_a_row_does_not_take_it_back():
    rows = Rows(4)
    large = rows.enter("large", 6)
    small = rows.enter("small", 2)
    for victim in large[2:4]:
        rows.queue.release(victim)
        rows.enter("large", has_begun=True)
    rows.enter("large")
    assert preempted(small) == [False, False]


@pytest.mark.parametrize(("weight", "rows_taken"), [(1.0, 2), (3.0, 3), (0.3, 1)])
def test_shares_are_by_weight(weight: float, rows_taken: int):
    rows = Rows(4)
    rows.enter("large", 10)
    assert running(rows.enter("small", 4, weight=weight)) == rows_taken


def test_with_more_tenants_than_rows_nobody_yields():
    rows = Rows(4)
    large = rows.enter("large", 5)
    for number in range(4):
        rows.enter(f"small {number}", may_yield=False)
    assert sum(preempted(large)) == 3
    assert running(rows.enter("late")) == 0


def test_a_tenant_that_had_more_than_its_turn_waits():
    rows = Rows(2)
    small = rows.enter("small", 2)
    large = rows.enter("large", 2)
    assert running(large) == 1
    rows.clock.now += 1
    (kept,) = (each for each in small if not each.is_yielding)
    rows.queue.charge(kept, 1_000)
    rows.queue.release(next(each for each in small if each.is_yielding))
    rows.queue.release(kept)
    assert running(large) == 2
    assert running(rows.enter("small")) == 0


@pytest.mark.parametrize(
    ("fair_preemption", "may_yield"), [(False, True), (True, False)], ids=["off", "must stay"]
)
def test_streams_that_may_not_yield_keep_their_rows(fair_preemption: bool, may_yield: bool):
    rows = Rows(4, fair_preemption=fair_preemption)
    rows.enter("large", 10, may_yield=may_yield)
    assert running(rows.enter("small", 2)) == 0
