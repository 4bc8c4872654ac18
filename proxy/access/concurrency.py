"""A limit on how much runs at once: one more is refused, never queued.

Used by the generation service (through `model_concurrency`) and by the tokenizer routes.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

from proxy.domain.errors import ErrorCode, InvalidRequest, RateLimited

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
        return Permits(self, count)

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
    """The permits that one `with` holds: see ConcurrencyLimit.permits."""

    __slots__ = ("_count", "_owner")

    def __init__(self, owner: ConcurrencyLimit, count: int) -> None:
        self._owner = owner
        self._count = count

    def __enter__(self) -> None:
        self._owner.take(self._count)

    def __exit__(self, *_: object) -> None:
        self._owner.give_back(self._count)


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
