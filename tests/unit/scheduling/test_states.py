"""What operators see of the queues, in one process and from the parent of several."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from itertools import count

import pytest

from triton_openai.proxy.domain.errors import LimitsUnavailable
from triton_openai.proxy.domain.scheduling import Permit, QueueState, Scheduler, TenantState, Ticket
from triton_openai.proxy.scheduling import parent_queues
from triton_openai.proxy.scheduling.in_process import InProcessScheduler
from triton_openai.proxy.scheduling.limits import QueueLimits
from triton_openai.proxy.scheduling.worker_scheduler import WorkerScheduler

QUEUE, OTHER = "default/demo", "default/other"
LIMITS = QueueLimits()
ADAPTERS = ("in process", "worker")


@asynccontextmanager
async def scheduler_of(adapter: str, folder):
    if adapter == "in process":
        async with InProcessScheduler(LIMITS) as scheduler:
            yield scheduler
        return
    async with (
        parent_queues.served(LIMITS, folder),
        WorkerScheduler(folder / parent_queues.SOCKET) as scheduler,
    ):
        yield scheduler


async def acquire(scheduler: Scheduler, tenant: str, **fields: object) -> Permit:
    ticket = Ticket(**{"queue": QUEUE, "tenant": tenant, **fields})
    return await scheduler.acquire(ticket, moved=lambda _: None, preempted=lambda: None)


async def waiting(scheduler: Scheduler, tenant: str, **fields: object) -> asyncio.Task[Permit]:
    """One that has told the queue that it waits."""
    before = await numbers(scheduler)
    task = asyncio.create_task(acquire(scheduler, tenant, **fields))
    for _ in count():
        if await numbers(scheduler) != before:
            return task
        await asyncio.sleep(0)
    raise AssertionError


async def numbers(scheduler: Scheduler) -> list[tuple[str, int, int]]:
    return [(one.queue, one.running, one.waiting) for one in await scheduler.states()]


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_queues_with_a_capacity_or_streams_are_listed_by_name(adapter, tmp_path):
    async def run() -> None:
        async with scheduler_of(adapter, tmp_path) as scheduler:
            assert await scheduler.states() == ()
            scheduler.set_capacity(OTHER, 3)
            permit = await acquire(scheduler, "acme")
            assert await scheduler.states() == (
                QueueState(queue=QUEUE, capacity=None, running=1, waiting=0),
                QueueState(queue=OTHER, capacity=3, running=0, waiting=0),
            )
            permit.release()
            assert await numbers(scheduler) == [(OTHER, 0, 0)]

    asyncio.run(run())


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_a_tenants_streams_of_all_classes_are_counted_together(adapter, tmp_path):
    async def run() -> None:
        async with scheduler_of(adapter, tmp_path) as scheduler:
            scheduler.set_capacity(QUEUE, 2)
            kept = [await acquire(scheduler, "acme"), await acquire(scheduler, "acme", priority=1)]
            tasks = [await waiting(scheduler, "acme", priority=at % 2) for at in range(3)]
            tasks.append(await waiting(scheduler, "small", weight=0.5))
            (state,) = await scheduler.states(tenants=9)
            assert state.tenants == (
                TenantState(tenant="acme", weight=1.0, running=2, waiting=3),
                TenantState(tenant="small", weight=0.5, running=0, waiting=1),
            )
            assert state.tenants_in_all == 2
            (state,) = await scheduler.states(tenants=1)
            assert [one.tenant for one in state.tenants] == ["acme"]
            assert state.tenants_in_all == 2
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for permit in kept:
                permit.release()

    asyncio.run(run())


def test_a_worker_without_its_parent_knows_no_queues(tmp_path):
    async def run() -> None:
        path = tmp_path / parent_queues.SOCKET
        with pytest.raises(LimitsUnavailable):
            await WorkerScheduler(path).states()
        async with parent_queues.served(LIMITS, tmp_path):
            scheduler = await WorkerScheduler(path).__aenter__()
            assert await scheduler.states() == ()
        with pytest.raises(LimitsUnavailable):
            await scheduler.states()

    asyncio.run(run())


@pytest.mark.parametrize(
    ("limits", "capacity", "places"),
    [
        (QueueLimits(waiting=7), 100, 7),
        (QueueLimits(waiting=7, waiting_a_stream=2), 100, 200),
        (QueueLimits(waiting=7, waiting_a_stream=2), None, 7),
        (QueueLimits(waiting=7, waiting_a_stream=2), 0, 0),
    ],
)
def test_places_may_depend_on_the_capacity(limits, capacity, places):
    assert limits.places(capacity) == places
