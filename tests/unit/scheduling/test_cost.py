"""What 10,000 streams that wait cost: in operations that can be counted, and in memory."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import pytest

from proxy.scheduling.fair_queue import FairQueue
from proxy.settings.streams import Scheduling
from tests.doubles.queued_stream import Clock, QueuedStream
from tests.fixtures.schedulers import ticket

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
