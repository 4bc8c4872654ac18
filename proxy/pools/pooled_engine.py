"""The pools as one engine: chooses an endpoint for each stream. Implements domain.engine.Engine."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from typing_extensions import Self

from proxy.domain.engine import EngineRequest
from proxy.domain.errors import (
    DeadlineExceeded,
    ForeignAnswer,
    GuidePending,
    ModelUnavailable,
    ProxyError,
)
from proxy.domain.output import TokenDelta
from proxy.domain.record import StageName, running_record
from proxy.pools.endpoint_counter import EndpointCounter, Outcome
from proxy.pools.pool_set import PoolSet
from proxy.pools.router import Route, Router

FIRST_LOOK = 4  # deltas; later ones at 8, 16, …


class PooledEngine:
    """`async with` runs the pools."""

    def __init__(self, pools: PoolSet, router: Router, counter: EndpointCounter) -> None:
        self._pools = pools
        self._router = router
        self._counter = counter

    async def __aenter__(self) -> Self:
        await self._pools.__aenter__()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self._pools.__aexit__(*exc_info)

    def has_another(self, request: EngineRequest) -> bool:
        """Whether an endpoint that the request does not avoid serves its model now."""
        return self._router.has_another(request.model, request.avoids)

    async def generate(self, request: EngineRequest) -> AsyncGenerator[TokenDelta, None]:
        """See domain.engine.Engine. A ModelUnavailable names the endpoint that was lost."""
        route, clock = self._routed(request), self._pools.clock
        outcome, tokens, seen, look, counted = Outcome.LEFT, 0, 0, FIRST_LOOK, 0
        asked, waited_s = clock(), 0.0
        try:
            async with aclosing(route.engine.generate(request)) as deltas:
                async for delta in deltas:
                    waited_s += clock() - asked
                    tokens += len(delta.token_bytes)
                    seen += 1
                    if delta.prompt_tokens is not None:
                        self._counter.began(route.place, waited_s, route.matched)
                        running_record().add_endpoint(route.place.endpoint)
                        route.began(delta.prompt_tokens, delta.cached_tokens or 0, waited_s)
                        waited_s, counted = 0.0, tokens
                    elif seen == look:
                        route.paced(waited_s, tokens - counted)
                        waited_s, counted, look = 0.0, tokens, 2 * look
                    if delta.finish is not None:
                        outcome = Outcome.ENDED
                    yield delta
                    asked = clock()
        except DeadlineExceeded:  # the endpoint may have said nothing at all
            raise
        except ProxyError as error:
            outcome = _failed(route, error)
            raise
        finally:
            _end(route, request, outcome, tokens)
            self._counter.ended(route.place, outcome.value, tokens)

    def _routed(self, request: EngineRequest) -> Route:
        stage = request.stage
        if stage is None:
            return self._router.route(request)
        with stage.stage(StageName.ROUTING):
            route = self._router.route(request)
        stage.attributes["endpoint"] = route.place.endpoint
        return route


def _failed(route: Route, error: ProxyError) -> Outcome:
    if isinstance(error, ModelUnavailable) and not isinstance(error, GuidePending):
        error.endpoint = route.place.endpoint
        route.lost()
        return Outcome.FOREIGN if isinstance(error, ForeignAnswer) else Outcome.LOST
    route.answered()
    return Outcome.REFUSED


def _end(route: Route, request: EngineRequest, outcome: Outcome, tokens: int) -> None:
    route.end()
    if outcome is Outcome.ENDED:
        route.observe(request, tokens)
