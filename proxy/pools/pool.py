"""A pool: its endpoints as the source names them, and the choice among them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from random import Random

import structlog

from proxy import background
from proxy.domain.endpoints import Decisions, EndpointAddress, EndpointSource
from proxy.domain.errors import EndpointDrains
from proxy.domain.model import LoadedModel, ModelFacts
from proxy.pools.breaker import Clock
from proxy.pools.candidate import Candidates
from proxy.pools.choice import Chooser, Policy
from proxy.pools.endpoint import LOOK_EVERY_S, Connect, Endpoint, Served
from proxy.telemetry.endpoint_metrics import EndpointMetrics, Place

MOST_SHARE = 0.5
FIRST_CHECKS_S = 6.0
AT_ONCE = 16  # in one turn of the event loop: each of them then finds an endpoint


def variants_of(endpoints: Iterable[Endpoint]) -> dict[int, Candidates[Served]]:
    """By the identity of the model's facts; of endpoints that get streams."""
    found: dict[int, list[Served]] = {}
    for endpoint in endpoints:
        if endpoint.gets_streams:
            for one in endpoint.served.values():
                found.setdefault(id(one.model.facts), []).append(one)
    return {key: Candidates(served) for key, served in found.items()}


def may_eject(
    *, endpoints: int, ejected: int, healthy_others: int, most_share: float = MOST_SHARE
) -> bool:
    """Whether one more endpoint of a pool may be ejected.

    endpoints: all of the pool. ejected: those whose breaker is not closed. healthy_others: those
    that would still get new streams. At most `most_share` of the endpoints are ejected, but one
    may always be, and never the last healthy one.
    """
    most = max(1, int(endpoints * most_share))
    return healthy_others >= 1 and ejected < most


logger = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolOptions:
    """connect: to an endpoint. most_ejected: the share of endpoints that may be ejected at once.

    metrics_port: of endpoints whose address names none; None: their load is not read.
    """

    name: str
    source: EndpointSource
    connect: Connect
    metrics_port: int | None = None
    policy: Policy = Policy.PREFIX
    most_ejected: float = MOST_SHARE


class Pool:
    """interned: equal models -> the one object that stands for all of them.

    changed: called when what the pool serves may differ.
    """

    def __init__(
        self,
        options: PoolOptions,
        decisions: Decisions,
        counter: EndpointMetrics,
        *,
        interned: Callable[[LoadedModel], LoadedModel],
        clock: Clock,
        random: Random,
        changed: Callable[[], None],
    ) -> None:
        self.name = options.name
        self.metrics_port = options.metrics_port
        self.chooser = Chooser(options.policy, clock=clock, random=random)
        self.endpoints: dict[str, Endpoint] = {}
        self.ejected: set[str] = set()  # those whose breaker is not closed
        self._options = options
        self._decisions = decisions
        self._counter = counter
        self._interned = interned
        self._clock = clock
        self._changed = changed
        self._variants: dict[int, Candidates[Served]] | None = None
        self._running: set[asyncio.Task[None]] = set()
        self._named = asyncio.Event()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Follows the source and the operators' decisions. The body begins after first checks."""
        following = [asyncio.create_task(self._follow()), asyncio.create_task(self._look_after())]
        try:
            await self._first_checks()
            yield
        finally:
            await background.end(following)
            await background.end(self._running)

    def variant(self, facts: ModelFacts) -> Candidates[Served] | None:
        """The endpoints that get streams for this build; None: there is none.

        facts: of one of `models`, itself: equal facts of another object are not found.
        """
        if self._variants is None:
            self._variants = variants_of(self.endpoints.values())
        return self._variants.get(id(facts))

    def models(self) -> list[LoadedModel]:
        """Every build that an endpoint serves, also one that is not ready now."""
        known = {
            id(one.model.facts): one.model
            for endpoint in self.endpoints.values()
            if not endpoint.is_leaving
            for one in endpoint.served.values()
        }
        return list(known.values())

    def note_change(self) -> None:
        self._variants = None
        self._changed()

    def note_breaker(self, endpoint: Endpoint) -> None:
        """Called after a stream's success or failure there may have moved its breaker."""
        if not self._has(endpoint):
            return
        is_closed = endpoint.breaker.is_closed
        if is_closed and endpoint.name in self.ejected:
            self.ejected.discard(endpoint.name)
            logger.info("endpoint is no longer ejected", pool=self.name, endpoint=endpoint.name)
            self.begin_slowly(endpoint)
            self._changed()
        elif not is_closed and endpoint.name not in self.ejected:
            self.ejected.add(endpoint.name)
            self._changed()
            self._counter.ejected(Place(self.name, endpoint.name))
            logger.warning(
                "endpoint is ejected",
                pool=self.name,
                endpoint=endpoint.name,
                reason=endpoint.why_ejected,
                seconds=endpoint.breaker.ejected_for_s,
                advice="look at this Triton and its log; it is tried again by itself",
            )

    def may_eject(self, endpoint: Endpoint) -> bool:
        others = [one for one in self.endpoints.values() if one is not endpoint]
        return may_eject(
            endpoints=len(self.endpoints),
            ejected=len(self.ejected),
            healthy_others=sum(one.gets_streams and one.breaker.is_closed for one in others),
            most_share=self._options.most_ejected,
        )

    async def _first_checks(self) -> None:
        """Until every endpoint that the source names first has been asked, but not for longer than
        FIRST_CHECKS_S: a proxy that begins with some of them would not know all models.
        """

        async def all_checked() -> None:
            await self._named.wait()
            for endpoint in list(self.endpoints.values()):
                await endpoint.checked.wait()

        checking = asyncio.create_task(all_checked())
        await asyncio.wait([checking], timeout=FIRST_CHECKS_S)
        await background.end([checking])

    async def _follow(self) -> None:
        async with aclosing(self._options.source.watch()) as sets:
            async for addresses in sets:
                self._update(addresses)
                self._named.set()

    def _update(self, addresses: frozenset[EndpointAddress]) -> None:
        named = {one.address: one for one in addresses}
        for name, endpoint in self.endpoints.items():
            endpoint.set_leaving(name not in named)
        for name in sorted(named.keys() - self.endpoints.keys()):
            self._add(named[name])
        self.note_change()

    def _add(self, address: EndpointAddress) -> None:
        endpoint = Endpoint(
            self,
            address,
            self._options.connect(address),
            bit=self.chooser.prefixes.add_endpoint(),
            clock=self._clock,
        )
        self.endpoints[endpoint.name] = endpoint
        logger.info("endpoint found", pool=self.name, endpoint=endpoint.name)
        endpoint.set_drained(endpoint.name in self._decisions.drained)
        task = asyncio.create_task(endpoint.run())
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    def own(self, model: LoadedModel) -> LoadedModel:
        return self._interned(replace(model, pool=self.name))

    def begin_slowly(self, endpoint: Endpoint) -> None:
        """It was not ready before, so its engines have nothing cached."""
        if not self._has(endpoint):
            return
        for one in endpoint.served.values():
            self.chooser.forget(one)
            self.chooser.start_slowly(one)

    def remove(self, endpoint: Endpoint) -> None:
        """It has left, and its streams have ended."""
        del self.endpoints[endpoint.name]
        self.ejected.discard(endpoint.name)
        for one in endpoint.served.values():
            self.chooser.end_slow_start(one)
        self.chooser.adapters.forget(endpoint.bit)  # before the bit is free for another
        self.chooser.prefixes.remove_endpoint(endpoint.bit)
        self.note_change()

    def _has(self, endpoint: Endpoint) -> bool:
        """False when it has left: its name and its bit may be another endpoint's now."""
        return self.endpoints.get(endpoint.name) is endpoint

    async def _look_after(self) -> None:
        """Obeys operators' decisions, and moves the streams of endpoints that drain."""
        while True:
            drained = self._decisions.drained
            for endpoint in list(self.endpoints.values()):
                endpoint.set_drained(endpoint.name in drained)
            for endpoint in list(self.endpoints.values()):
                if endpoint.is_drained or endpoint.is_leaving:
                    await self._move(endpoint)
            await asyncio.sleep(LOOK_EVERY_S)

    async def _move(self, endpoint: Endpoint) -> None:
        """Interrupts the streams that another endpoint can continue now: this one drains."""
        fired = 0
        for interrupt, facts in list(endpoint.movable.items()):
            if interrupt.error is not None or self.variant(facts) is None:
                continue
            error = EndpointDrains("The server of this answer is being drained. Send it again.")
            error.endpoint = endpoint.name
            interrupt.fire(error)
            fired += 1
            if fired % AT_ONCE == 0:
                await asyncio.sleep(0)
