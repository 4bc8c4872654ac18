"""A limit on how much runs at once: one more is refused, never queued.

Used by the generation service, for each model and for all, and by the tokenizer routes.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence

from proxy.domain.engine import EngineRequest
from proxy.domain.errors import ErrorCode, InvalidRequest, RateLimited
from proxy.domain.model import ModelCard
from proxy.domain.tokenizer import AdmittedPrompt, Tokenizer

REMEMBERED_RETURNS = 64
UNKNOWN_S = 1.0  # before any permit has been returned
SHORTEST_S, LONGEST_S = 0.1, 60.0  # OpenAI's SDKs do not retry when they must wait over 120 s


class ConcurrencyLimit:
    """Hands out a fixed number of permits.

    Args:
        limit: how many permits there are; None for no limit.
        of: what has the limit, for the error message.
        what: what a permit is for, for the error message.
    """

    def __init__(
        self,
        limit: int | None,
        *,
        of: str = "This server",
        what: str = "generations",
    ) -> None:
        self._limit = limit
        self._of = of
        self._what = what
        self._rate = PermitRate()
        self.running = 0  # permits in use

    def permits(self, count: int = 1) -> Permits:
        """Holds `count` permits for the body of the `with`.

        Raises, when the `with` begins:
            InvalidRequest: `count` is more than the limit, so waiting would not help.
            RateLimited: too few permits are free now.
        """
        return Permits(count, self)

    def check_possible(self, count: int) -> None:
        """Raises InvalidRequest: `count` is more than the limit."""
        if self._limit is not None and count > self._limit:
            raise InvalidRequest(
                f"This request is for {count} {self._what} at once (prompts x choices, which "
                f"count for more with top_logprobs): {self._of} runs at most {self._limit}. Ask "
                "for fewer.",
                code=ErrorCode.INVALID_PARAMETER,
                param="choices",
            )

    def take(self, count: int) -> None:
        """Takes `count` permits. Raises as `permits`."""
        if self._limit is not None:
            self.check_possible(count)
            missing = self.running + count - self._limit
            if missing > 0:
                raise RateLimited(
                    f"{self._of} runs at most {self._limit} {self._what} at once, and all of "
                    "them are in use. Try again in a moment.",
                    retry_after_s=self._rate.wait_s(missing),
                    code=ErrorCode.QUEUE_FULL,
                )
        self.running += count

    def give_back(self, count: int) -> None:
        self.running -= count
        self._rate.returned(count)


class Permits:
    """Permits of each of some limits, for one `with`. One object: every request makes it."""

    __slots__ = ("_count", "_limits")

    def __init__(self, count: int, *limits: ConcurrencyLimit) -> None:
        self._count = count
        self._limits = limits

    def __enter__(self) -> None:
        for place, limit in enumerate(self._limits):
            try:
                limit.take(self._count)
            except BaseException:
                for taken in self._limits[:place]:
                    taken.give_back(self._count)
                raise

    def __exit__(self, *_: object) -> None:
        for limit in self._limits:
            limit.give_back(self._count)


class PermitRate:
    """Estimates from the last returns how soon permits will be free again, for Retry-After.

    `clock`: seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._returns: deque[tuple[float, int]] = deque(maxlen=REMEMBERED_RETURNS)

    def returned(self, permits: int) -> None:
        self._returns.append((self._clock(), permits))

    def wait_s(self, permits: int) -> float:
        """Seconds until `permits` more permits will have been returned, within fixed bounds."""
        if not self._returns:
            return UNKNOWN_S
        since, first = self._returns[0]
        back = sum(count for _, count in self._returns) - (first if len(self._returns) > 1 else 0)
        rate = back / max(self._clock() - since, 1e-3)
        return min(max(permits / rate, SHORTEST_S), LONGEST_S)


class ModelConcurrency:
    """Hands out permits for generations.

    Args:
        most: generations of all models together; None for no limit.
        per_row: a model's limit, for each row that its engine decodes at once. It is generous,
            since it is there to stop floods: a model may have few rows and short requests.
        rows: of all engines of a card's build.
        is_queued: whether the streams of a card wait in the fair queue, which has bounds of its
            own. Then a model's limit is only the most that one request may ask for.
    """

    def __init__(
        self,
        most: int | None = None,
        *,
        per_row: int = 16,
        rows: Callable[[ModelCard], int] = lambda card: card.facts.rows,
        is_queued: Callable[[ModelCard], bool] = lambda card: False,
    ) -> None:
        self._all = ConcurrencyLimit(most)
        self._per_row = per_row
        self._rows = rows
        self._is_queued = is_queued
        self._models: dict[tuple[str, str, int], ConcurrencyLimit] = {}

    @property
    def running(self) -> int:
        """Generations now."""
        return self._all.running

    def permits(self, card: ModelCard, count: int) -> Permits:
        """Holds `count` permits of the model and of the total for the body of the `with`.

        Raises as ConcurrencyLimit.permits does.
        """
        limit = self._model_limit(card)
        if self._is_queued(card):
            limit.check_possible(count)
            return Permits(count, self._all)
        return Permits(count, limit, self._all)

    def _model_limit(self, card: ModelCard) -> ConcurrencyLimit:
        """A LoRA adapter shares the limit of its model, because it shares the engine's rows."""
        limit = self._rows(card) * self._per_row
        key = card.pool, card.triton_model, limit
        if key not in self._models:
            of = f"The model {card.parent or card.name!r}"
            self._models[key] = ConcurrencyLimit(limit, of=of)
        return self._models[key]


MOST_CALLS = 32  # at once, of /tokenize, /detokenize, /render and nvext's annotations


class BoundedTokenizer:
    """Implements domain.tokenizer.Tokenizer; both methods may also raise RateLimited."""

    def __init__(self, tokenizer: Tokenizer, most: int = MOST_CALLS) -> None:
        self._tokenizer = tokenizer
        self._concurrency = ConcurrencyLimit(most, what="tokenizer calls")

    async def admit(self, request: EngineRequest) -> AdmittedPrompt:
        with self._concurrency.permits():
            return await self._tokenizer.admit(request)

    async def token_bytes(self, model: ModelCard, ids: Sequence[int]) -> tuple[bytes, ...]:
        with self._concurrency.permits():
            return await self._tokenizer.token_bytes(model, ids)
