"""What is counted of the queue: waits, refusals by reason, preemptions, and the queues."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import pytest

from proxy.domain.errors import RateLimited
from proxy.domain.scheduling import Permit, QueueState, Ticket
from proxy.scheduling.in_process import InProcessScheduler
from proxy.settings.streams import Scheduling
from tests.doubles import clock

QUEUE = "default/demo"
SETTINGS = Scheduling(queue_length=2, queue_timeout_s=30.0)


class Counts:
    def __init__(self) -> None:
        self.waits: list[float] = []
        self.refusals: list[tuple[str, float]] = []
        self.preemptions = 0
        self.states: list[tuple[QueueState, ...]] = []

    def waited(self, queue: str, seconds: float) -> None:
        self.waits.append(round(seconds, 3))

    def refused(self, queue: str, reason: str, seconds: float) -> None:
        self.refusals.append((reason, round(seconds, 1)))

    def preempted(self, queue: str) -> None:
        self.preemptions += 1

    def counted(self, states: Iterable[QueueState]) -> None:
        self.states.append(tuple(states))


def observed(counts: Counts) -> InProcessScheduler:
    return InProcessScheduler(SETTINGS, counts, clock=asyncio.get_running_loop().time)


async def acquire(scheduler: InProcessScheduler, tenant: str = "acme", **fields: object) -> Permit:
    ticket = Ticket(**{"queue": QUEUE, "tenant": tenant, **fields})
    return await scheduler.acquire(ticket, moved=lambda _: None, preempted=lambda: None)


@clock.jumps
async def test_waits_are_timed_and_queues_counted_once_a_second():
    counts = Counts()
    async with observed(counts) as scheduler:
        scheduler.set_capacity(QUEUE, 1)
        first = await acquire(scheduler)
        second = asyncio.create_task(acquire(scheduler))
        await asyncio.sleep(2.5)
        first.release()
        (await second).release()
    assert counts.waits == [0.0, 2.5]
    assert [(one.running, one.waiting) for (one,) in counts.states[1:]] == [(1, 1)] * 2


@clock.jumps
@pytest.mark.parametrize(
    ("fields", "reason", "waited_s"),
    [
        ({"patience_s": 0}, "no_wait", 0.0),
        ({"patience_s": 4.0}, "timeout", 4.0),
        ({}, "timeout", 30.0),
        ({"patience_s": 500.0}, "timeout", 30.0),
    ],
)
async def test_a_refusal_is_counted_by_its_reason(fields, reason, waited_s):
    counts = Counts()
    async with observed(counts) as scheduler:
        scheduler.set_capacity(QUEUE, 1)
        permit = await acquire(scheduler)
        with pytest.raises(RateLimited):
            await acquire(scheduler, **fields)
        permit.release()
    assert counts.refusals == [(reason, waited_s)]


@clock.jumps
async def test_one_without_a_place_is_told_from_one_that_lost_its_place():
    counts = Counts()
    async with observed(counts) as scheduler:
        scheduler.set_capacity(QUEUE, 1)
        permit = await acquire(scheduler)
        tasks = [asyncio.create_task(acquire(scheduler)) for _ in range(2)]
        await asyncio.sleep(1)
        with pytest.raises(RateLimited):
            await acquire(scheduler)
        tasks.append(asyncio.create_task(acquire(scheduler, "small")))
        await asyncio.sleep(0.1)
        assert counts.refusals == [("full", 0.0), ("displaced", 1.0)]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        permit.release()


@clock.jumps
async def test_a_preemption_is_counted_and_passed_on():
    counts, stopped = Counts(), asyncio.Event()
    async with observed(counts) as scheduler:
        scheduler.set_capacity(QUEUE, 1)
        low = await scheduler.acquire(
            Ticket(queue=QUEUE, tenant="acme", may_yield=True),
            moved=lambda _: None,
            preempted=stopped.set,
        )
        high = await acquire(scheduler, priority=1)
        await asyncio.wait_for(stopped.wait(), 1)
        assert counts.preemptions == 1
        low.release()
        high.release()
