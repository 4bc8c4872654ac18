"""Settings -> the fair queue, and what keeps its capacities up to date. Called by `app`."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial

from typing_extensions import Self

from proxy.domain.scheduling import FreeScheduler, Scheduler
from proxy.pools.pool_set import PoolSet
from proxy.pools.queue_capacity import QueueCapacities, Spare, fixed_spare, usual_spare
from proxy.scheduling.in_process import InProcessScheduler
from proxy.scheduling.observed import ObservedScheduler
from proxy.scheduling.places import QueueLimits
from proxy.settings import Settings
from proxy.state.meters import Ledger
from proxy.telemetry.queue_metrics import QueueMetrics

WAITING_A_STREAM = 16
MOST_WAITING = 100_000


@dataclass(slots=True)
class Queues:
    """The scheduler of all streams. `async with` runs it, and sets its queues' capacities.

    capacities: None where nothing has rows that are known.
    """

    scheduler: Scheduler
    capacities: QueueCapacities | None = None
    _running: AsyncExitStack | None = None

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as entered:
            await entered.enter_async_context(self.scheduler)
            if self.capacities is not None:
                await entered.enter_async_context(self.capacities)
            self._running = entered.pop_all()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        if self._running is not None:
            await self._running.aclose()


def queues(
    settings: Settings,
    ledger: Ledger,
    metrics: QueueMetrics,
    pools: PoolSet | None,
) -> Queues:
    """pools: None where there are none."""
    if settings.scheduling == "none":
        return Queues(FreeScheduler())
    own = limits(settings)
    scheduler = ObservedScheduler(
        InProcessScheduler(own), metrics, longest_wait_s=own.longest_wait_s
    )
    if pools is None:
        return Queues(scheduler)
    capacities = QueueCapacities(
        pools, scheduler, spare=_spare(settings), share=partial(part, ledger)
    )
    return Queues(scheduler, capacities)


def part(ledger: Ledger, streams: int) -> int:
    """This proxy's part of a capacity, rounded up so that no row stays idle."""
    return -(-streams // ledger.proxies)


def limits(settings: Settings) -> QueueLimits:
    """How many streams may wait in each queue, and for how long."""
    waiting, per_tenant = settings.queue_length, settings.queue_length_per_tenant
    return QueueLimits(
        waiting=MOST_WAITING if waiting is None else waiting,
        waiting_a_stream=WAITING_A_STREAM if waiting is None else None,
        waiting_per_tenant=MOST_WAITING if per_tenant is None else per_tenant,
        longest_wait_s=settings.queue_timeout_s,
        fair_preemption=settings.fair_preemption,
    )


def _spare(settings: Settings) -> Spare:
    streams = settings.spare_streams
    return usual_spare if streams is None else fixed_spare(streams)
