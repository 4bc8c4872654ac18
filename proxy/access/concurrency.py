"""How many generations may run at once. One more is refused, never queued. Held by the service."""

from __future__ import annotations

from pathlib import Path

from triton_openai.proxy.access.service_rate import ServiceRate
from triton_openai.proxy.access.slots import OwnSlots, SharedSlots, Slots
from triton_openai.proxy.domain.errors import ErrorCode, InvalidRequest, RateLimited


class Concurrency:
    """Permits of one kind.

    Args:
        limit: None for no limit.
        shared: a file, for a limit of all processes together.
        of: what has the limit, in words for the caller.
        what: what a permit is for, in words for the caller.
    """

    def __init__(
        self,
        limit: int | None,
        shared: Path | None = None,
        *,
        of: str = "This server",
        what: str = "generations",
    ) -> None:
        self._limit = limit
        self._of = of
        self._what = what
        self._slots = None if limit is None else _slots(limit, shared)
        self._rate = ServiceRate()
        self.running = 0  # in this process

    def permits(self, count: int = 1) -> Permits:
        """So many, for a `with` that lasts as long as the request's stream.

        Raises, at the beginning of the `with`:
            InvalidRequest: there are never so many.
            RateLimited: too few are left.
        """
        return Permits(self, count)

    def take(self, count: int) -> list[int]:
        """The slots of so many permits, for `give_back`. Raises as `permits`."""
        slots = self._take(count)
        self.running += count
        return slots

    def give_back(self, count: int, slots: list[int]) -> None:
        self.running -= count
        self._rate.returned(count)
        self._give_back(slots)

    def _take(self, count: int) -> list[int]:
        if self._slots is None or self._limit is None:
            return []
        if count > self._limit:
            raise InvalidRequest(
                f"This request is for {count} {self._what} at once (prompts x choices, which "
                f"count for more with top_logprobs): {self._of} runs at most {self._limit}. Ask "
                "for fewer.",
                code=ErrorCode.INVALID_PARAMETER,
                param="choices",
            )
        taken: list[int] = []
        while len(taken) < count:
            slot = self._slots.take()
            if slot is None:
                self._give_back(taken)
                missing = count - len(taken)
                raise RateLimited(
                    f"{self._of} runs at most {self._limit} {self._what} at once, and all of "
                    "them are under way. Try again in a moment.",
                    retry_after_s=self._rate.wait_s(missing),
                )
            taken.append(slot)
        return taken

    def _give_back(self, taken: list[int]) -> None:
        if self._slots is not None:
            for slot in taken:
                self._slots.give_back(slot)


class Permits:
    """See Concurrency.permits."""

    __slots__ = ("_count", "_owner", "_taken")

    def __init__(self, owner: Concurrency, count: int) -> None:
        self._owner = owner
        self._count = count
        self._taken: list[int] = []

    def __enter__(self) -> None:
        self._taken = self._owner.take(self._count)

    def __exit__(self, *_: object) -> None:
        self._owner.give_back(self._count, self._taken)


def _slots(limit: int, shared: Path | None) -> Slots:
    return OwnSlots(limit) if shared is None else SharedSlots(limit, shared)
