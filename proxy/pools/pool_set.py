"""All pools of one process. Implements domain.endpoints.Pools and domain.engine.Catalog."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable
from contextlib import AsyncExitStack
from random import Random

from typing_extensions import Self

from proxy import background
from proxy.domain.endpoints import Decisions, EndpointRefused, EndpointResult, EndpointStatus
from proxy.domain.engine import NotReady
from proxy.domain.health import Concern
from proxy.domain.model import LoadedModel, ModelCard
from proxy.pools.breaker import Clock
from proxy.pools.candidate import Candidates
from proxy.pools.pool import NOT_REACHED, Endpoint, Pool, PoolOptions, Served
from proxy.telemetry.endpoint_metrics import EndpointMetrics
from proxy.triton.connection import TritonConnection

COUNT_EVERY_S = 1.0
NOTHING_SERVED = "no endpoint serves a model of this project"


class PoolSet:
    """`async with` follows all sources and checks all endpoints until the body ends.

    changed: set when endpoints, what they serve, or their breakers have changed; its reader clears
    it.
    """

    def __init__(
        self,
        options: Iterable[PoolOptions],
        counter: EndpointMetrics,
        decisions: Decisions,
        *,
        clock: Clock = time.monotonic,
        random: Random | None = None,
    ) -> None:
        self._counter = counter
        self.clock = clock
        self._running = AsyncExitStack()
        self.changed = asyncio.Event()
        self.pools = {
            one.name: Pool(
                one,
                decisions,
                counter,
                clock=clock,
                random=random or Random(),
                changed=self.changed.set,
            )
            for one in options
        }

    async def __aenter__(self) -> Self:
        enter = self._running.enter_async_context
        await asyncio.gather(*(enter(pool.running()) for pool in self.pools.values()))
        counting = asyncio.create_task(self._count_states())
        self._running.push_async_callback(background.end, [counting])
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._running.aclose()

    async def _count_states(self) -> None:
        """Counts the endpoints of each pool by their state, once a second."""
        while True:
            for name, pool in self.pools.items():
                states = Counter(one.state for one in pool.endpoints.values())
                self._counter.counted(name, states)
                await asyncio.sleep(0)  # other tasks run between two pools: each has up to 1,000
            await asyncio.sleep(COUNT_EVERY_S)

    def variant(self, card: ModelCard) -> Candidates[Served] | None:
        """The endpoints that get streams for exactly this build of the model."""
        pool = self.pools.get(card.pool)
        return None if pool is None else pool.variant(card.loaded or card.facts)

    def is_available(self, card: ModelCard) -> bool:
        """Whether an endpoint serves exactly this build of the model now."""
        return self.variant(card) is not None

    def rows(self, card: ModelCard) -> int:
        """Requests that all endpoints of this build run at once; its own if there is none."""
        variant = self.variant(card)
        if variant is None:
            return card.facts.rows
        if card.facts.adopted is not None:
            return card.facts.rows * len(variant.members)
        return sum(one.rows for one in variant.members)

    def models(self) -> tuple[LoadedModel, ...]:
        """Every build of every model that an endpoint serves, also one that is not ready now."""
        return tuple(one for pool in self.pools.values() for one in pool.models())

    async def load(self) -> tuple[LoadedModel, ...]:
        """Raises NotReady: no endpoint is ready, for whatever model; see `is_available`."""
        if (reason := self.why_not_ready()) is not None:
            raise reason
        if not (models := self.models()):
            raise NotReady(NOTHING_SERVED)
        return models

    def why_not_ready(self) -> NotReady | None:
        """None while at least one endpoint gets streams."""
        endpoints = [one for pool in self.pools.values() for one in pool.endpoints.values()]
        if any(one.gets_streams for one in endpoints):
            return None
        if len(endpoints) == 1:
            (only,) = endpoints
            return only.trouble or NotReady(f"{only.name}: {only.status().reason}")
        reasons = [f"{one.name}: {one.status().reason}" for one in endpoints]
        if not reasons:
            return NotReady("no endpoint of Triton has been found", "no Triton server is known")
        category = "no Triton server is ready"
        if all(one.is_drained for one in endpoints):
            category = "every Triton server is drained"
        for failed in self._failed():
            category = failed.category
        return NotReady(f"none of {len(endpoints)} endpoints is ready; {reasons[0]}", category)

    def concerns(self) -> list[Concern]:
        """The reasons why models do not generate, each with the number of models."""
        served = sum(
            len(one.served) for pool in self.pools.values() for one in pool.endpoints.values()
        )
        counts = Counter(one.category for one in self._failed())
        return [
            Concern(message=f"{category} ({count} of {served} on all endpoints)", is_fatal=False)
            for category, count in counts.items()
        ]

    def _failed(self) -> list[NotReady]:
        """Why models do not generate: one for each model of each endpoint that has failed."""
        return [
            one.why_not_ready
            for pool in self.pools.values()
            for endpoint in pool.endpoints.values()
            for one in endpoint.served.values()
            if one.has_failed and one.why_not_ready is not None
        ]

    def endpoints(self) -> tuple[EndpointStatus, ...]:
        for pool in self.pools.values():  # who has just drained one sees it
            pool.obey()
        found = [one.status() for pool in self.pools.values() for one in pool.endpoints.values()]
        return tuple(sorted(found, key=lambda one: (one.pool, one.address)))

    async def load_model(
        self, model: str, *, pools: Collection[str] = ()
    ) -> tuple[EndpointResult, ...]:
        return await self._everywhere(pools, lambda one: one.load_model(model))

    async def unload_model(
        self, model: str, *, pools: Collection[str] = ()
    ) -> tuple[EndpointResult, ...]:
        return await self._everywhere(pools, lambda one: one.unload_model(model))

    async def _everywhere(
        self, pools: Collection[str], change: Callable[[TritonConnection], Awaitable[None]]
    ) -> tuple[EndpointResult, ...]:
        chosen = [
            endpoint
            for name, pool in sorted(self.pools.items())
            if not pools or name in pools
            for endpoint in pool.endpoints.values()
        ]
        return tuple(await asyncio.gather(*(_changed(endpoint, change) for endpoint in chosen)))


async def _changed(
    endpoint: Endpoint, change: Callable[[TritonConnection], Awaitable[None]]
) -> EndpointResult:
    error: str | None = None
    if endpoint.why_not_ready is NOT_REACHED:
        error = str(NOT_REACHED)
    else:
        try:
            await change(endpoint.connection)
        except EndpointRefused as refusal:
            error = str(refusal)
        endpoint.note_loading()
    return EndpointResult(pool=endpoint.pool.name, address=endpoint.name, error=error)
