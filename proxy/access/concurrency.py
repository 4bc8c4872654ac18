"""A limit on how much runs at once: one more is refused, never queued.

Used by the generation service, for each model and for all, and by the tokenizer routes.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext

from proxy.domain.batch_line import current_line
from proxy.domain.engine import EngineRequest
from proxy.domain.errors import SERVER_LIMIT, ErrorCode, InvalidRequest, RateLimited, unsupported
from proxy.domain.identity import current_caller
from proxy.domain.model import ModelCard
from proxy.domain.request import GenerationRequest
from proxy.domain.tokenizer import AdmittedPrompt, Tokenizer

REMEMBERED_RETURNS = 64
UNKNOWN_S = 1.0  # before any permit has been returned
SHORTEST_S, LONGEST_S = 0.1, 60.0  # OpenAI's SDKs do not retry when they must wait over 120 s
ALTERNATIVES_A_PERMIT = 4


class ConcurrencyLimit:
    """Hands out a number of permits.

    Args:
        limit: how many permits there are.
        of: what has the limit, for the error message.
        what: what a permit is for, for the error message.
        clock: seconds.
    """

    def __init__(
        self,
        limit: int,
        *,
        of: str = "This server",
        what: str = "generations",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.limit = limit
        self._of = of
        self._what = what
        self._clock = clock
        self._returns: deque[tuple[float, int]] = deque(maxlen=REMEMBERED_RETURNS)
        self.running = 0  # permits in use

    @contextmanager
    def permits(self, count: int = 1) -> Iterator[None]:
        """Holds `count` permits for the body of the `with`.

        Raises:
            InvalidRequest: `count` is more than the limit, so waiting would not help.
            RateLimited: too few permits are free now.
        """
        self.check_possible(count)
        missing = self.running + count - self.limit
        if missing > 0:
            raise self._refusal(self.wait_s(missing))
        self.running += count
        try:
            yield
        finally:
            self.running -= count
            self._returns.append((self._clock(), count))

    def check_possible(self, count: int) -> None:
        """Raises InvalidRequest: `count` is more than the limit."""
        if count > self.limit:
            raise InvalidRequest(
                f"This request is for {count} {self._what} at once (prompts x choices, which "
                f"count for more with top_logprobs): {self._of} runs at most {self.limit}. Ask "
                "for fewer.",
                param="choices",
            )

    def _refusal(self, wait_s: float) -> RateLimited:
        return RateLimited(
            f"{self._of} runs at most {self.limit} {self._what} at once, and all of them are in "
            "use. Try again in a moment.",
            retry_after_s=wait_s,
            code=ErrorCode.QUEUE_FULL,
        )

    def wait_s(self, permits: int) -> float:
        """Estimates from the last returns when so many permits will have been returned."""
        if not self._returns:
            return UNKNOWN_S
        since, first = self._returns[0]
        back = sum(count for _, count in self._returns) - (first if len(self._returns) > 1 else 0)
        rate = back / max(self._clock() - since, 1e-3)
        return min(max(permits / rate, SHORTEST_S), LONGEST_S)


class ServerConcurrency(ConcurrencyLimit):
    """That of all models together, MAX_CONCURRENT_REQUESTS. The specification words its refusal.

    Its `limit` tells it from the limits of callers, which have the same code.
    """

    def _refusal(self, wait_s: float) -> RateLimited:
        return RateLimited(
            "Too many concurrent requests. Please try again later.",
            retry_after_s=wait_s,
            limit=SERVER_LIMIT,
        )


PARTS = 4  # a tenant, or an address without a tenant, gets at most one of these parts


class SharedConcurrency:
    """As ConcurrencyLimit, but no caller gets more than a part of the permits."""

    def __init__(self, limit: int, *, what: str) -> None:
        self._what = what
        self._all = ConcurrencyLimit(limit, what=what)
        self._of_tenants: dict[str, ConcurrencyLimit] = {}  # those that have a permit

    @contextmanager
    def permits(self, caller: str) -> Iterator[None]:
        """One for the running request. caller: its address or name, where it has no tenant.

        Raises:
            RateLimited: too few are free now.
        """
        who = current_caller.get()
        tenant = caller if who.is_shared else who.tenant
        of, most = "For one tenant, this server", max(1, self._all.limit // PARTS)
        new = ConcurrencyLimit(most, of=of, what=self._what)
        mine = self._of_tenants.setdefault(tenant, new)
        try:
            with mine.permits(), self._all.permits():
                yield
        finally:
            if not mine.running:
                self._of_tenants.pop(tenant, None)


class ModelConcurrency:
    """Hands out permits for generations.

    Args:
        most: generations of all models together; None for no limit.
        per_row: a model's limit, for each row that its engine decodes at once. It is generous,
            since it is there to stop floods: a model may have few rows and short requests.
        rows: of all engines of a card's build.
        are_queued: streams of models that say their rows wait in the fair queue, which has bounds
            of its own. Then a model's limit is only the most that one request may ask for.
    """

    def __init__(
        self,
        most: int | None = None,
        *,
        per_row: int = 16,
        rows: Callable[[ModelCard], int] = lambda card: card.facts.rows,
        are_queued: bool = False,
    ) -> None:
        self._all = None if most is None else ServerConcurrency(most)
        self._per_row = per_row
        self._rows = rows
        self._are_queued = are_queued
        self._models: dict[tuple[str, str], ConcurrencyLimit] = {}

    @property
    def running(self) -> int:
        """Generations that hold a permit of their model."""
        return sum(limit.running for limit in self._models.values())

    def permits(self, card: ModelCard, request: GenerationRequest) -> AbstractContextManager[None]:
        """Holds the request's permits of the model, and of all models, for the body of the `with`.
        Lines of batches take none of all models: they may not push others out.

        Raises as ConcurrencyLimit.permits does.
        """
        count = permits_needed(request)
        if not (self._are_queued and card.facts.says_rows):
            return self._held(card, count)
        if count > self._per_row:
            self._of(card, count).check_possible(count)
        return self._held_of_all(count)

    @contextmanager
    def _held(self, card: ModelCard, count: int) -> Iterator[None]:
        with self._of(card, count).permits(count), self._held_of_all(count):
            yield

    def _held_of_all(self, count: int) -> AbstractContextManager[None]:
        if self._all is None or current_line.get() is not None:
            return NOTHING_HELD
        return self._all.permits(count)

    def _of(self, card: ModelCard, count: int) -> ConcurrencyLimit:
        """A LoRA adapter shares the limit of its model, because it shares the engine's rows."""
        key = card.pool, card.triton_model
        limit = self._models.get(key)
        if limit is None:
            of = f"The model {card.parent or card.name!r}"
            limit = self._models[key] = ConcurrencyLimit(self._per_row, of=of)
        if limit.running + count > self._per_row:  # else one row is enough
            limit.limit = self._rows(card) * self._per_row
        return limit


NOTHING_HELD = nullcontext()


def permits_needed(request: GenerationRequest) -> int:
    """How many permits the request takes: one for each choice of each prompt.

    Choices with `top_logprobs` take more, because their tokens cost the proxy more: with twenty
    alternatives a choice takes six permits.
    """
    top = request.sampling.top_log_probs or 0
    return request.generations * (1 + -(-top // ALTERNATIVES_A_PERMIT))


MOST_CALLS = 32  # at once, of /tokenize, /detokenize, /render and nvext's annotations


class BoundedTokenizer:
    """Implements domain.tokenizer.Tokenizer; both methods may also raise RateLimited."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._concurrency = ConcurrencyLimit(MOST_CALLS, what="tokenizer calls")

    async def admit(self, request: EngineRequest) -> AdmittedPrompt:
        if request.images:
            raise unsupported(
                "Only the engine counts the tokens of an image: ask without images.",
                param="messages",
            )
        with self._concurrency.permits():
            return await self._tokenizer.admit(request)

    async def token_bytes(self, model: ModelCard, ids: Sequence[int]) -> tuple[bytes, ...]:
        with self._concurrency.permits():
            return await self._tokenizer.token_bytes(model, ids)


MOST_HELD = 1_000_000


class LogProbBudget:
    """Bounds the log-probabilities that all non-streamed answers hold in memory together.

    most: entries of all requests of this process; each alternative is an entry, too.
    """

    def __init__(self, most: int = MOST_HELD) -> None:
        self.most = most
        self.entries = 0

    @contextmanager
    def share(self) -> Iterator[Callable[[int], None]]:
        """For one request: takes more of the budget; all of it is given back when the `with` ends.

        It raises RateLimited: all requests together hold too many.
        """
        held = 0

        def take(entries: int) -> None:
            nonlocal held
            if self.entries + entries > self.most:
                raise RateLimited(
                    f"This server holds at most {self.most} log-probabilities for answers that are "
                    "not streamed, and they are all in use. Ask for fewer, or again later.",
                    code=ErrorCode.QUEUE_FULL,
                )
            self.entries += entries
            held += entries

        try:
            yield take
        finally:
            self.entries -= held
