"""One engine stream on its endpoint: its work there, and what it shows of the endpoint's health."""

from __future__ import annotations

from proxy.domain.engine import EngineRequest, TokenSource
from proxy.domain.errors import ForeignAnswer, GuidePending, ModelUnavailable, ProxyError
from proxy.pools.breaker import Attempt
from proxy.pools.candidate import SLOW_STREAMS
from proxy.pools.choice import Choice
from proxy.pools.outstanding import TokenEstimates, Work
from proxy.pools.pool import Pool, Served
from proxy.telemetry.endpoint_metrics import Outcome, Place


class Route:
    """One stream on one endpoint. matched: the share of its prompt that is probably cached there.

    peers: all endpoints that serve the build. Call `end` once the stream is closed.
    """

    __slots__ = (
        "_attempt",
        "_candidate",
        "_endpoint",
        "_estimates",
        "_has_plain_start",
        "_is_slow",
        "_peers",
        "_pool",
        "_prompt_tokens",
        "_request",
        "_work",
        "engine",
        "matched",
        "place",
    )

    def __init__(
        self,
        pool: Pool,
        choice: Choice[Served],
        peers: tuple[Served, ...],
        work: Work,
        attempt: Attempt,
        estimates: TokenEstimates,
        request: EngineRequest,
    ) -> None:
        endpoint = choice.candidate.endpoint
        self.engine: TokenSource = endpoint.connection.engine
        self.place = Place(pool.name, endpoint.name)
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
        self._request = request
        if request.interrupt is not None:
            request.interrupt.endpoint = endpoint.name
            endpoint.movable[request.interrupt] = request.model.facts

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

    def failed(self, error: ProxyError) -> Outcome:
        """Marks a lost endpoint, and names it in the error."""
        if not isinstance(error, ModelUnavailable) or isinstance(error, GuidePending):
            self.answered()
            return Outcome.REFUSED
        error.endpoint = self.place.endpoint
        self._attempt.failed()
        self._pool.note_breaker(self._endpoint)
        self._endpoint.lost()
        return Outcome.FOREIGN if isinstance(error, ForeignAnswer) else Outcome.LOST

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

    def end(self, tokens: int | None = None) -> None:
        """tokens: of a stream that ended by itself, from which the estimates learn."""
        self._attempt.abandoned()
        self._work.release()
        if self._prompt_tokens and not self._is_slow:
            self._candidate.speed.slow_streams = 0
        if self._request.interrupt is not None:
            self._endpoint.movable.pop(self._request.interrupt, None)
        if tokens is not None:
            text = self._request.text
            self._estimates.observe(
                text_length=None if text is None else len(text),
                prompt_tokens=self._prompt_tokens,
                output_tokens=tokens,
            )
