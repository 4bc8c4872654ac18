"""The pools as one engine: chooses an endpoint for each stream. Implements domain.engine.Engine."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from contextlib import aclosing

from typing_extensions import Self

from triton_openai.proxy.domain.engine import EngineRequest
from triton_openai.proxy.domain.errors import (
    DeadlineExceeded,
    ForeignAnswer,
    GuidePending,
    ModelUnavailable,
    ProxyError,
)
from triton_openai.proxy.domain.output import TokenDelta
from triton_openai.proxy.domain.timeline import StageName
from triton_openai.proxy.pools.endpoint_counter import EndpointCounter, Outcome
from triton_openai.proxy.pools.pool_set import PoolSet
from triton_openai.proxy.pools.router import Route, Router
from triton_openai.proxy.telemetry import request_log


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
        route = self._routed(request)
        began, outcome, tokens = time.monotonic(), Outcome.LEFT, 0
        try:
            async with aclosing(route.engine.generate(request)) as deltas:
                async for delta in deltas:
                    if delta.prompt_tokens is not None:
                        self._counter.began(route.place, time.monotonic() - began, route.matched)
                        request_log.list_in("endpoints", route.place.endpoint)
                        route.began(delta.prompt_tokens, delta.cached_tokens or 0)
                    tokens += len(delta.token_bytes)
                    if delta.finish is not None:
                        outcome = Outcome.ENDED
                    yield delta
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
