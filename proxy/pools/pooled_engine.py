"""The pools as one engine, one tokenizer and one catalog, as `domain` has their ports."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Sequence
from contextlib import aclosing
from itertools import count
from typing import TypeVar

from typing_extensions import Self

from proxy.domain.engine import EngineRequest, NotReady
from proxy.domain.errors import (
    DeadlineExceeded,
    ForeignAnswer,
    GuidePending,
    ModelUnavailable,
    ProxyError,
)
from proxy.domain.model import LoadedModel, ModelCard
from proxy.domain.output import TokenDelta
from proxy.domain.record import StageName, running_record
from proxy.domain.tokenizer import AdmittedPrompt, Tokenizer
from proxy.pools.endpoint import Endpoint
from proxy.pools.endpoint_counter import EndpointCounter, Outcome
from proxy.pools.pool_set import PoolSet
from proxy.pools.router import Route, Router

FIRST_LOOK = 4  # deltas; later ones at 8, 16, …
MOST_TRIES = 3
NOTHING_SERVED = "no endpoint serves a model of this project"


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


Result = TypeVar("Result")


class PooledTokenizer:
    """Endpoints of a model take turns. One that is lost is left out, and another one asked."""

    def __init__(self, pools: PoolSet) -> None:
        self._pools = pools
        self._turns = count()

    async def admit(self, request: EngineRequest) -> AdmittedPrompt:
        return await self._asked(request.model, lambda tokenizer: tokenizer.admit(request))

    async def token_bytes(self, model: ModelCard, ids: Sequence[int]) -> tuple[bytes, ...]:
        return await self._asked(model, lambda tokenizer: tokenizer.token_bytes(model, ids))

    async def _asked(
        self, card: ModelCard, ask: Callable[[Tokenizer], Awaitable[Result]]
    ) -> Result:
        lost = ModelUnavailable("The model server is not available.")
        for _ in range(MOST_TRIES):
            if (endpoint := self._next(card)) is None:
                break
            try:
                return await ask(endpoint.connection.tokenizer)
            except GuidePending:
                raise
            except ModelUnavailable as error:
                lost = error
                endpoint.lost()
        raise lost

    def _next(self, card: ModelCard) -> Endpoint | None:
        variant = self._pools.variant(card)
        if variant is None:
            return None
        served = list(variant.served.values())
        return served[next(self._turns) % len(served)].endpoint


class PooledCatalog:
    """Asks nobody itself, so both methods are cheap."""

    def __init__(self, pools: PoolSet) -> None:
        self._pools = pools

    def has_news(self) -> bool:
        return self._pools.take_news()

    def is_available(self, card: ModelCard) -> bool:
        """Whether an endpoint serves exactly this build of the model now."""
        return self._pools.variant(card) is not None

    def rows(self, card: ModelCard) -> int:
        return self._pools.rows(card)

    async def check_ready(self, models: Collection[str]) -> None:
        """Returns when an endpoint is ready, for whatever model: see `is_available`."""
        if (reason := self._pools.why_not_ready()) is not None:
            raise reason

    async def load(self) -> tuple[LoadedModel, ...]:
        await self.check_ready(())
        if not (models := self._pools.models()):
            raise NotReady(NOTHING_SERVED)
        return models
