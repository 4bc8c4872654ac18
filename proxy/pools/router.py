"""The endpoint for each engine stream, and the account of its work there. For pooled_engine."""

from __future__ import annotations

from collections.abc import Sequence

from proxy.domain.engine import EngineRequest, TokenSource
from proxy.domain.errors import ModelUnavailable
from proxy.domain.model import ModelCard
from proxy.pools.breaker import Attempt
from proxy.pools.candidate import SLOW_STREAMS, Candidate, Candidates
from proxy.pools.choice import Choice, RoutedRequest
from proxy.pools.endpoint import Endpoint
from proxy.pools.endpoint_counter import Place
from proxy.pools.outstanding import TokenEstimates, Work
from proxy.pools.pool import Pool, Variant
from proxy.pools.pool_set import PoolSet
from proxy.pools.prefix_index import prompt_blocks

NOTHING_SERVES = "no endpoint that is ready serves this build of the model"
MOST_MODELS = 1024  # whose lengths are remembered


class Route:
    """One stream on one endpoint. matched: the share of its prompt that is probably cached there.

    peers: all endpoints that serve the build. interrupt: of a stream that can be moved. Call `end`
    once the stream is closed.
    """

    __slots__ = (
        "_attempt",
        "_candidate",
        "_endpoint",
        "_estimates",
        "_has_plain_start",
        "_interrupt",
        "_is_slow",
        "_peers",
        "_pool",
        "_prompt_tokens",
        "_work",
        "engine",
        "matched",
        "place",
    )

    def __init__(
        self,
        pool: Pool,
        endpoint: Endpoint,
        choice: Choice,
        peers: tuple[Candidate, ...],
        work: Work,
        attempt: Attempt,
        estimates: TokenEstimates,
        request: EngineRequest,
    ) -> None:
        self.engine: TokenSource = endpoint.connection.engine
        self.place = Place(endpoint.pool, endpoint.name)
        self.matched = choice.matched
        self._candidate = choice.candidate
        self._peers = peers
        self._is_slow = False
        # nothing else takes time before its first token, such as the compilation of a guide
        self._has_plain_start = request.constraint is None and not request.generated
        self._pool = pool
        self._endpoint = endpoint
        self._work = work
        self._attempt = attempt
        self._estimates = estimates
        self._prompt_tokens = 0
        self._interrupt = interrupt = request.interrupt
        if interrupt is not None:
            interrupt.endpoint = endpoint.name
            endpoint.movable[interrupt] = request.model.facts

    def began(self, prompt_tokens: int, cached_tokens: int, waited_s: float) -> None:
        """The first token came. cached_tokens: of the prompt, which cost the engine nothing."""
        self._prompt_tokens = prompt_tokens
        self._work.set_prompt_tokens(prompt_tokens - cached_tokens)
        self.answered()
        if self._has_plain_start:
            self._candidate.speed.began(waited_s, prompt_tokens - cached_tokens)
            self._compare()

    def paced(self, waited_s: float, tokens: int) -> None:
        """So many tokens came since the last call, after so long a wait for the endpoint."""
        self._candidate.speed.each_token.add(waited_s / max(1, tokens))
        self._compare()

    def answered(self) -> None:
        """With a token, or with an error that is not the endpoint's fault."""
        self._attempt.succeeded()
        if self._pool.ejected:
            self._pool.note_breaker(self._endpoint)

    def lost(self) -> None:
        self._attempt.failed()
        self._pool.note_breaker(self._endpoint)
        self._endpoint.lost()

    def _compare(self) -> None:
        mine = self._candidate
        if not self._endpoint.breaker.is_closed:
            return
        others = [one.speed for one in self._peers if one is not mine]
        slowness, is_outlier = mine.speed.compared(others)
        if is_outlier and not self._is_slow:
            self._is_slow = True
            mine.speed.slow_streams += 1
        is_ejected = mine.speed.slow_streams >= SLOW_STREAMS and self._endpoint.breaker.eject_slow()
        self._pool.chooser.slow_down(mine, 1.0 if is_ejected else slowness)
        if is_ejected:
            mine.speed.forget()
            self._pool.note_breaker(self._endpoint)

    def end(self) -> None:
        self._attempt.abandoned()
        self._work.release()
        if self._prompt_tokens and not self._is_slow:
            self._candidate.speed.slow_streams = 0
        if self._interrupt is not None:
            self._endpoint.movable.pop(self._interrupt, None)

    def observe(self, request: EngineRequest, tokens: int) -> None:
        """The stream ended by itself after so many tokens."""
        length = None if request.text is None else len(request.text)
        self._estimates.observe(
            text_length=length, prompt_tokens=self._prompt_tokens, output_tokens=tokens
        )


class Router:
    def __init__(self, pools: PoolSet) -> None:
        self._pools = pools
        self._estimates: dict[str, TokenEstimates] = {}  # by Triton's name of the model

    def has_another(self, card: ModelCard, avoided: frozenset[str]) -> bool:
        """Whether an endpoint that is not among the avoided ones serves this build."""
        variant = self._pools.variant(card)
        return variant is not None and bool(variant.candidates.without(avoided).members)

    def route(self, request: EngineRequest) -> Route:
        """Chooses, and counts the stream. Raises ModelUnavailable: no endpoint is left."""
        card = request.model
        variant = self._pools.variant(card)
        if variant is None:
            raise _unavailable()
        pool, estimates = self._pools.pools[card.pool], self._estimates_of(card)
        candidates = variant.candidates.without(request.avoids)
        if pool.ejected:
            candidates = _open(variant, candidates)
        prompt: str | Sequence[int] = request.text or request.token_ids or ""
        output_tokens = estimates.output_tokens(request.max_tokens)
        has_choice = len(candidates.members) > 1
        routed = _routed(request, prompt, estimates, output_tokens, has_choice=has_choice)
        choice = pool.chooser.choose(candidates, routed)
        if choice is None:
            raise _unavailable()
        candidate = choice.candidate
        endpoint = variant.served[candidate.address].endpoint
        attempt = endpoint.breaker.admit(is_last_resort=bool(pool.ejected))
        pool.chooser.sent(candidate, routed)
        work = candidate.outstanding.add(
            prompt_tokens=round(routed.prompt_tokens * (1.0 - choice.matched)),
            output_tokens=output_tokens,
        )
        peers = variant.candidates.members
        return Route(pool, endpoint, choice, peers, work, attempt, estimates, request)

    def _estimates_of(self, card: ModelCard) -> TokenEstimates:
        found = self._estimates.get(card.triton_model)
        if found is None:
            if len(self._estimates) >= MOST_MODELS:
                self._estimates.clear()
            found = self._estimates[card.triton_model] = TokenEstimates()
        return found


def _unavailable() -> ModelUnavailable:
    return ModelUnavailable("The model server is not available.", detail=NOTHING_SERVES)


def _open(variant: Variant, candidates: Candidates) -> Candidates:
    """Those whose breaker lets a stream through; if none does, those that may be tried again, and
    if each of these is being tried by another stream, all of them.
    """
    breakers = {one: variant.served[one.address].endpoint.breaker for one in candidates.members}
    if not (admitted := [one for one, breaker in breakers.items() if breaker.can_admit]):
        for breaker in breakers.values():
            breaker.end_early()
        admitted = [one for one, breaker in breakers.items() if breaker.can_admit]
    return Candidates.of(admitted) if admitted else candidates


def _routed(
    request: EngineRequest,
    prompt: str | Sequence[int],
    estimates: TokenEstimates,
    output_tokens: int,
    *,
    has_choice: bool,
) -> RoutedRequest:
    """has_choice: without one, blocks and adapter do not matter."""
    tokens, card = estimates.prompt_tokens(prompt), request.model
    if not has_choice:
        return RoutedRequest(tokens)
    adapter = card.name if card.parent is not None else None
    blocks = prompt_blocks(
        prompt, model=card.triton_model, cache_salt=request.cache_salt, adapter=adapter
    )
    return RoutedRequest(tokens, blocks, adapter, output_tokens)
