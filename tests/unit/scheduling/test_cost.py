"""What 10,000 streams that wait cost: in operations that can be counted, and in memory."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import pytest
from prometheus_client import CollectorRegistry

from proxy.scheduling.fair_queue import FairQueue
from proxy.scheduling.in_process import InProcessScheduler
from proxy.settings.streams import Scheduling
from proxy.telemetry.metrics import QueueMetrics
from tests.doubles.clock import run as run_jumping
from tests.doubles.queued_stream import Clock, QueuedStream
from tests.fixtures.schedulers import QUEUE, Caller, settled, ticket

WAITING = 10_000
SETTINGS = Scheduling(queue_length=WAITING)


@contextmanager
def counted_calls() -> Iterator[list[int]]:
    """Of Python functions."""
    calls = [0]

    def count(frame: FrameType, event: str, _: object) -> None:
        calls[0] += event == "call"

    sys.setprofile(count)
    try:
        yield calls
    finally:
        sys.setprofile(None)


def full(tenants: int, priorities: int = 1) -> tuple[FairQueue, list[QueuedStream]]:
    """The first of the streams runs."""
    queue = FairQueue(SETTINGS, Clock())
    queue.set_capacity(1)
    streams = [
        QueuedStream(ticket(f"t{n % tenants}", prompt_tokens=n % 7, priority=n % priorities))
        for n in range(WAITING + 1)
    ]
    for stream in streams:
        queue.enter(stream)
    return queue, streams


shapes = pytest.mark.parametrize(
    ("tenants", "priorities"), [(1, 1), (1_000, 1), (WAITING, 1), (10, 5), (1, WAITING)]
)


@shapes
def test_a_decision_and_a_cancellation_cost_a_few_calls(tenants: int, priorities: int):
    queue, streams = full(tenants, priorities)
    with counted_calls() as calls:
        queue.release(streams[0])
    assert calls[0] < 100
    with counted_calls() as calls:
        for stream in streams[5_000:5_100]:
            queue.leave(stream)
    assert calls[0] < 100 * 60
    assert queue.waiting == WAITING - 101


@shapes
def test_a_pass_of_standings_is_cut_into_short_steps(tenants: int, priorities: int):
    queue, streams = full(tenants, priorities)
    queue.release(streams[0])
    standings, most, steps, before = queue.standings(), 0, 0, 0
    with counted_calls() as calls:
        for _ in standings:
            most, steps, before = max(most, calls[0] - before), steps + 1, calls[0]
    waiting = [stream for stream in streams[1:] if stream.position]
    assert steps <= WAITING
    assert most < 30 + 6 * (priorities > 1)
    assert sorted(stream.position for stream in waiting if stream is not streams[1])[-1] < WAITING


def test_what_has_left_leaves_nothing_behind():
    queue, streams = full(1_000)
    for stream in streams:
        queue.leave(stream)
    assert queue.waiting == queue.running == 0
    assert len(queue._classes) == 0
    assert not queue._places._tenants
    assert not queue._places._sizes
    assert not queue._running._may_yield


def test_callers_that_come_and_go_do_not_fill_the_memory():
    async def main() -> None:
        loop = asyncio.get_running_loop()
        counter = QueueMetrics(CollectorRegistry())
        async with InProcessScheduler(SETTINGS, counter, clock=loop.time) as scheduler:
            scheduler.set_capacity(QUEUE, 1)
            first = Caller(scheduler, ticket("first"))
            keeps = Caller(scheduler, ticket("keeps"))
            await settled()
            for n in range(3_000):
                gone = Caller(scheduler, ticket(f"t{n}"))
                await settled(2)
                gone.task.cancel()
                await settled(2)
            queue = scheduler._queues[QUEUE]
            assert len(queue._classes[0].order) < 200
            assert len(queue._classes[0].shares) == 2
            first.release()
            await settled()
            assert keeps.runs

    run_jumping(main())
    gc.collect()


def test_counters_stay_small_however_much_is_served():
    queue = FairQueue(SETTINGS, Clock())
    queue.set_capacity(1)
    streams = [
        QueuedStream(ticket("ab"[n % 2], prompt_tokens=10**11 + n, weight=1 + n % 2))
        for n in range(600)
    ]
    for stream in streams:
        queue.enter(stream)
    order = []
    for _ in range(590):
        running = next(each for each in streams if each.state.name == "RUNNING")
        order.append(running.ticket.tenant)
        queue.release(running)
        assert all(share.counter < 3e12 for share in queue._classes[0].shares.values())
    begun = order[:400]  # b has twice the weight of a
    assert begun.count("b") == pytest.approx(2 * begun.count("a"), rel=0.05)
