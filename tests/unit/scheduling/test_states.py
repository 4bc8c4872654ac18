"""What operators see of the queues."""

from __future__ import annotations

import asyncio
from itertools import count

import pytest
from prometheus_client import CollectorRegistry

from proxy.domain.errors import RateLimited
from proxy.domain.scheduling import Permit, Scheduler, TenantState, Ticket
from proxy.scheduling.fair_queue import FairQueue
from proxy.scheduling.in_process import InProcessScheduler
from proxy.settings.streams import Scheduling
from proxy.telemetry.metrics import QueueMetrics
from tests.doubles.queued_stream import Clock, QueuedStream

pytestmark = pytest.mark.anyio

QUEUE, OTHER = "default/demo", "default/other"
SETTINGS = Scheduling()


async def acquire(scheduler: Scheduler, tenant: str, **fields: object) -> Permit:
    ticket = Ticket(**{"queue": QUEUE, "tenant": tenant, **fields})
    return await scheduler.acquire(ticket, moved=lambda _: None, preempted=lambda: None)


async def waiting(scheduler: Scheduler, tenant: str, **fields: object) -> asyncio.Task[Permit]:
    """One that has told the queue that it waits."""
    before = numbers(scheduler)
    task = asyncio.create_task(acquire(scheduler, tenant, **fields))
    for _ in count():
        if numbers(scheduler) != before:
            return task
        await asyncio.sleep(0)
    raise AssertionError


def numbers(scheduler: Scheduler) -> list[tuple[str, int, int]]:
    return [(one.queue, one.running, one.waiting) for one in scheduler.states()]


async def test_a_tenants_streams_of_all_classes_are_counted_together():
    async with InProcessScheduler(SETTINGS, QueueMetrics(CollectorRegistry())) as scheduler:
        scheduler.set_capacity(QUEUE, 2)
        kept = [await acquire(scheduler, "acme"), await acquire(scheduler, "acme", priority=1)]
        tasks = [await waiting(scheduler, "acme", priority=at % 2) for at in range(3)]
        tasks.append(await waiting(scheduler, "small", weight=0.5))
        (state,) = scheduler.states(tenants=9)
        assert state.tenants == (
            TenantState(tenant="acme", weight=1.0, running=2, waiting=3),
            TenantState(tenant="small", weight=0.5, running=0, waiting=1),
        )
        assert state.tenants_in_all == 2
        (state,) = scheduler.states(tenants=1)
        assert [one.tenant for one in state.tenants] == ["acme"]
        assert state.tenants_in_all == 2
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for permit in kept:
            permit.release()


@pytest.mark.parametrize(
    ("queue_length", "capacity", "places"), [(7, 2, 7), (None, 2, 32), (None, 0, 0), (0, 1, 0)]
)
def test_places_may_depend_on_the_capacity(queue_length, capacity, places):
    queue = FairQueue(Scheduling(queue_length=queue_length), Clock())
    queue.set_capacity(capacity)
    for _ in range(capacity + places):
        queue.enter(QueuedStream(Ticket(queue=QUEUE, tenant="a")))
    with pytest.raises(RateLimited):
        queue.enter(QueuedStream(Ticket(queue=QUEUE, tenant="a")))
    assert queue.waiting == places
