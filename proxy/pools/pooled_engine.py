"""The pools as one engine and one tokenizer, as `domain` has their ports."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from itertools import count
from typing import TypeVar

from typing_extensions import Self

from proxy.domain.engine import EngineRequest
from proxy.domain.errors import DeadlineExceeded, GuidePending, ModelUnavailable, ProxyError
from proxy.domain.model import ModelCard
from proxy.domain.output import TokenDelta
from proxy.domain.record import StageName, running_record
from proxy.domain.tokenizer import AdmittedPrompt, Tokenizer
from proxy.pools.candidate import Candidates
from proxy.pools.choice import RoutedRequest
from proxy.pools.outstanding import TokenEstimates
from proxy.pools.pool import Endpoint, Served
from proxy.pools.pool_set import PoolSet
from proxy.pools.prefix_index import prompt_blocks
from proxy.pools.route import Route
from proxy.telemetry.endpoint_metrics import EndpointMetrics, Outcome

FIRST_LOOK = 4  # deltas; later ones at 8, 16, …
MOST_TRIES = 3
NOTHING_SERVES = "no endpoint that is ready serves this build of the model"


class PooledEngine:
    """`async with` runs the pools."""

    def __init__(self, pools: PoolSet, counter: EndpointMetrics) -> None:
        self._pools = pools
        self._counter = counter
        self._estimates: dict[str, TokenEstimates] = {}  # by Triton's name of the model

    async def __aenter__(self) -> Self:
        await self._pools.__aenter__()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self._pools.__aexit__(*exc_info)

    def has_another(self, request: EngineRequest) -> bool:
        """Whether an endpoint that the request does not avoid serves its model now."""
        variant = self._pools.variant(request.model)
        return variant is not None and bool(variant.without(request.avoids).members)

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
            outcome = route.failed(error)
            raise
        finally:
            route.end(tokens if outcome is Outcome.ENDED else None)
            self._counter.ended(route.place, outcome, tokens)

    def _routed(self, request: EngineRequest) -> Route:
        stage = request.stage
        if stage is None:
            return self.route(request)
        with stage.stage(StageName.ROUTING):
            route = self.route(request)
        stage.attributes["endpoint"] = route.place.endpoint
        return route

    def route(self, request: EngineRequest) -> Route:
        """Chooses an endpoint, and counts the stream. Raises ModelUnavailable: none is left."""
        card = request.model
        variant = self._pools.variant(card)
        if variant is None:
            raise _unavailable()
        pool, estimates = self._pools.pools[card.pool], self._estimates_of(card)
        candidates = variant.without(request.avoids)
        if pool.ejected:
            candidates = _open(candidates)
        routed = _routed_request(request, estimates, has_choice=len(candidates.members) > 1)
        choice = pool.chooser.choose(candidates, routed)
        if choice is None:
            raise _unavailable()
        served = choice.candidate
        attempt = served.endpoint.breaker.admit(is_last_resort=bool(pool.ejected))
        pool.chooser.sent(served, routed)
        work = served.outstanding.add(
            prompt_tokens=round(routed.prompt_tokens * (1.0 - choice.matched)),
            output_tokens=routed.output_tokens,
        )
        return Route(pool, choice, variant.members, work, attempt, estimates, request)

    def _estimates_of(self, card: ModelCard) -> TokenEstimates:
        return self._estimates.setdefault(card.triton_model, TokenEstimates())


def _unavailable() -> ModelUnavailable:
    return ModelUnavailable("The model server is not available.", detail=NOTHING_SERVES)


def _open(candidates: Candidates[Served]) -> Candidates[Served]:
    """Those whose breaker lets a stream through; if none does, those that may be tried again, and
    if each of these is being tried by another stream, all of them.
    """
    members = candidates.members
    if not (admitted := [one for one in members if one.endpoint.breaker.can_admit]):
        for one in members:
            one.endpoint.breaker.end_early()
        admitted = [one for one in members if one.endpoint.breaker.can_admit]
    return Candidates(admitted) if admitted else candidates


def _routed_request(
    request: EngineRequest, estimates: TokenEstimates, *, has_choice: bool
) -> RoutedRequest:
    """has_choice: without one, blocks and adapter do not matter."""
    prompt: str | Sequence[int] = request.text or request.token_ids or ""
    tokens, card = estimates.prompt_tokens(prompt), request.model
    output_tokens = estimates.output_tokens(request.max_tokens)
    if not has_choice:
        return RoutedRequest(tokens, output_tokens=output_tokens)
    adapter = card.name if card.parent is not None else None
    blocks = prompt_blocks(
        prompt, model=card.triton_model, cache_salt=request.cache_salt, adapter=adapter
    )
    return RoutedRequest(tokens, blocks, adapter, output_tokens)


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
        return variant.members[next(self._turns) % len(variant.members)].endpoint
