"""The pools as one engine and one tokenizer, as `domain` has their ports."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from itertools import count
from typing import TypeVar

from typing_extensions import Self

from proxy.domain.engine import EngineRequest, TokenSource
from proxy.domain.errors import (
    DeadlineExceeded,
    ForeignAnswer,
    GuidePending,
    ModelUnavailable,
    ProxyError,
)
from proxy.domain.model import ModelCard
from proxy.domain.output import TokenDelta
from proxy.domain.record import Stage, StageName
from proxy.domain.tokenizer import AdmittedPrompt, Tokenizer
from proxy.pools.candidate import OUTPUT_TOKENS, SLOW_STREAMS, Candidates, Measure
from proxy.pools.choice import Choice, RoutedRequest
from proxy.pools.pool import Endpoint, Pool, Served
from proxy.pools.pool_set import PoolSet
from proxy.pools.prefix_index import prompt_blocks
from proxy.telemetry.endpoint_metrics import EndpointMetrics, Outcome, Place

FIRST_LOOK = 4  # deltas; later ones at 8, 16, …
MOST_TRIES = 3
NOTHING_SERVES = "no endpoint that is ready serves this build of the model"
SHORT_PROMPT = 256  # tokens; times to first tokens are converted to a prompt of no length
CHARACTERS_A_TOKEN = 4.0  # English text with the usual vocabularies; corrected by what is observed
WEIGHT_OF_NEWEST = 0.05  # the running means then cover about the last twenty requests


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
        route, clock, stage = self._routed(request), self._pools.clock, request.stage
        candidate = route.candidate
        outcome, tokens, seen, look, counted = Outcome.LEFT, 0, 0, FIRST_LOOK, 0
        asked, waited_s = clock(), 0.0
        try:
            async with aclosing(route.engine.generate(request)) as deltas:
                async for delta in deltas:
                    waited_s += clock() - asked
                    tokens += len(delta.token_bytes)
                    seen += 1
                    if delta.prompt_tokens is not None:
                        cached = delta.cached_tokens or 0
                        self._counter.began(route.place, waited_s, route.cached_tokens, cached)
                        if stage is not None:
                            stage.record.add_endpoint(route.place.endpoint)
                        route.began(delta.prompt_tokens, cached, waited_s)
                        waited_s, counted = 0.0, tokens
                    elif seen == look:
                        route.paced(waited_s / max(1, tokens - counted))
                        waited_s, counted, look = 0.0, tokens, 2 * look
                    if delta.finish is not None:
                        outcome = Outcome.ENDED
                    try:
                        yield delta
                    finally:  # after the token has left, also if it was the last one
                        if delta.prompt_blocks:
                            route.name_blocks(delta)
                    asked = candidate.answered_at = clock()
        except DeadlineExceeded:  # the endpoint may have said nothing at all
            raise
        except ProxyError as error:
            outcome = route.failed(error)
            self._counter.failed(route.place, error)
            raise
        finally:
            route.end(tokens if outcome is Outcome.ENDED else None)
            self._counter.ended(route.place, outcome, tokens)

    def _routed(self, request: EngineRequest) -> Route:
        stage = request.stage
        if stage is None:
            return self.route(request)
        with Stage(StageName.ROUTING, stage.record, stage):
            route = self.route(request)
        stage.attributes["endpoint"] = route.place.endpoint
        return route

    def route(self, request: EngineRequest) -> Route:
        """Chooses an endpoint, and counts the stream. Raises ModelUnavailable: none is left."""
        card = request.model
        variant = self._pools.variant(card)
        if variant is None:
            raise _unavailable()
        pool, candidates = self._pools.pools[card.pool], variant
        if request.avoids:
            candidates = candidates.without(request.avoids)
        if pool.ejected:
            candidates = _open(candidates)
        estimates = self._estimates.get(card.triton_model)
        if estimates is None:
            estimates = self._estimates[card.triton_model] = TokenEstimates()
        routed = _routed_request(request, estimates, has_choice=len(candidates.members) > 1)
        choice = pool.chooser.choose(candidates, routed)
        if choice is None:
            raise _unavailable()
        pool.chooser.sent(choice.candidate, routed)
        return Route(pool, choice, routed, variant.members, estimates, request)


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


class Route:
    """One stream on one endpoint: its work there, and what it shows of the endpoint's health.

    cached_tokens: of its prompt, that are probably cached there. peers: all endpoints that serve
    the build. Call `end` once the stream is closed.
    """

    __slots__ = (
        "_blocks",
        "_endpoint",
        "_estimates",
        "_has_plain_start",
        "_is_slow",
        "_output_tokens",
        "_peers",
        "_pool",
        "_prompt_tokens",
        "_request",
        "_round",
        "_seen_prompt_tokens",
        "cached_tokens",
        "candidate",
        "engine",
        "place",
    )

    def __init__(
        self,
        pool: Pool,
        choice: Choice[Served],
        routed: RoutedRequest,
        peers: tuple[Served, ...],
        estimates: TokenEstimates,
        request: EngineRequest,
    ) -> None:
        candidate = choice.candidate
        endpoint = candidate.endpoint
        self.engine: TokenSource = endpoint.connection.engine
        self.place = Place(pool.name, endpoint.name)
        self.cached_tokens = round(choice.cached_tokens)
        self._blocks = routed.blocks
        self.candidate = candidate
        self._peers = peers
        self._is_slow = False
        # nothing else takes time before its first token, such as the compilation of a guide
        self._has_plain_start = request.constraint is None and not request.generated
        self._pool = pool
        self._endpoint = endpoint
        self._estimates = estimates
        self._request = request
        # of the breaker; None once the stream has shown how it began
        self._round: int | None = endpoint.breaker.admit(is_last_resort=bool(pool.ejected))
        self._seen_prompt_tokens = 0
        # estimates of its work, until the engine has counted
        self._prompt_tokens = max(0, routed.prompt_tokens - self.cached_tokens)
        self._output_tokens = routed.output_tokens
        candidate.streams += 1
        candidate.tokens += self._prompt_tokens + self._output_tokens
        if request.interrupt is not None:
            request.interrupt.endpoint = endpoint.name
            facts = request.model.loaded or request.model.facts
            endpoint.interrupts[request.interrupt] = facts

    def began(self, prompt_tokens: int, cached_tokens: int, waited_s: float) -> None:
        """The first token came. cached_tokens: of the prompt, which cost the engine nothing."""
        computed = max(0, prompt_tokens - cached_tokens)
        self.candidate.tokens += computed - self._prompt_tokens
        self._seen_prompt_tokens, self._prompt_tokens = prompt_tokens, computed
        self._answered()
        if self._has_plain_start:
            first_s = waited_s * SHORT_PROMPT / (SHORT_PROMPT + computed)
            others = [one.speed.first_token for one in self._peers if one is not self.candidate]
            self._measure(self.candidate.speed.first_token, first_s, others)

    def name_blocks(self, first: TokenDelta) -> None:
        """The engine's blocks of the prompt came with its first token, see PrefixIndex.name."""
        request = self._request
        is_whole = request.prompt_limit is None and (request.text is None or not request.token_ids)
        if self._blocks is not None and is_whole:
            self._pool.chooser.prefixes.name(self.candidate.bit, self._blocks, first)

    def paced(self, token_s: float) -> None:
        """The mean wait for a token since the last call."""
        others = [one.speed.each_token for one in self._peers if one is not self.candidate]
        self._measure(self.candidate.speed.each_token, token_s, others)

    def failed(self, error: ProxyError) -> Outcome:
        """Marks a lost endpoint, and names it in the error."""
        if not isinstance(error, ModelUnavailable) or isinstance(error, GuidePending):
            self._answered()
            return Outcome.REFUSED
        error.endpoint = self.place.endpoint
        if self._round is not None:
            self._endpoint.breaker.failed(self._round)
            self._round = None
        self._pool.note_breaker(self._endpoint)
        self._endpoint.lost()
        return Outcome.FOREIGN if isinstance(error, ForeignAnswer) else Outcome.LOST

    def _answered(self) -> None:
        """With a token, or with an error that is not the endpoint's fault."""
        if self._round is not None:
            self._endpoint.breaker.succeeded(self._round)
            self._round = None
        if self._pool.ejected:
            self._pool.note_breaker(self._endpoint)

    def _measure(self, measure: Measure, newest_s: float, others: list[Measure]) -> None:
        """A time of this endpoint, which gets fewer streams if it is slow, and none if it is far
        slower than the others.
        """
        candidate, speed, breaker = self.candidate, self.candidate.speed, self._endpoint.breaker
        is_outlier = measure.add(newest_s, others)
        if not breaker.is_closed:
            return
        if is_outlier and not self._is_slow:
            self._is_slow = True
            speed.slow_streams += 1
        if speed.slow_streams >= SLOW_STREAMS and breaker.eject_slow():
            self._pool.chooser.slow_down(candidate, 1.0)
            speed.forget()
            self._pool.note_breaker(self._endpoint)
        else:
            slowness = max(speed.first_token.slowness, speed.each_token.slowness)
            self._pool.chooser.slow_down(candidate, slowness)

    def end(self, tokens: int | None = None) -> None:
        """tokens: of a stream that ended by itself, from which the estimates learn."""
        candidate = self.candidate
        if self._round is not None:
            self._endpoint.breaker.abandoned(self._round)
        candidate.streams -= 1
        candidate.tokens -= self._prompt_tokens + self._output_tokens
        if self._seen_prompt_tokens and not self._is_slow:
            candidate.speed.slow_streams = 0
        if self._blocks is not None and not self._seen_prompt_tokens:
            self._pool.chooser.prefixes.withdraw(candidate.bit, self._blocks)
        if self._request.interrupt is not None:
            self._endpoint.interrupts.pop(self._request.interrupt, None)
        if tokens is not None:
            text = self._request.text
            self._estimates.observe(
                text_length=None if text is None else len(text),
                prompt_tokens=self._seen_prompt_tokens,
                output_tokens=tokens,
            )


class TokenEstimates:
    """What a request to one model will probably take. Learns from requests that have ended."""

    __slots__ = ("_characters_a_token", "_output_tokens")

    def __init__(self) -> None:
        self._characters_a_token = CHARACTERS_A_TOKEN
        self._output_tokens = OUTPUT_TOKENS

    def prompt_tokens(self, prompt: str | Sequence[int]) -> int:
        """Exact for ids. The length of text counts in characters, which is O(1)."""
        if not isinstance(prompt, str):
            return len(prompt)
        return int(len(prompt) / self._characters_a_token) + 1

    def output_tokens(self, max_tokens: int | None) -> int:
        """The mean of recent outputs, or `max_tokens` if that is less."""
        expected = round(self._output_tokens)
        return expected if max_tokens is None else min(max(0, max_tokens), expected)

    def observe(self, *, text_length: int | None, prompt_tokens: int, output_tokens: int) -> None:
        """Call it when a stream ended by itself. text_length: characters; None for a prompt of ids.

        A stream that was cancelled or failed does not show how long answers are.
        """
        self._output_tokens += WEIGHT_OF_NEWEST * (output_tokens - self._output_tokens)
        if text_length and prompt_tokens > 0:
            ratio = min(max(text_length / prompt_tokens, 0.1), 100.0)
            self._characters_a_token += WEIGHT_OF_NEWEST * (ratio - self._characters_a_token)


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
