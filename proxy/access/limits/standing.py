"""Where a caller stands, for the headers of its response. Written by `reservation`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from proxy.access.limits.caller_meters import CallerMeters
from proxy.domain.model import NANOS
from proxy.state.meters import Look


class Standing(NamedTuple):
    """One limit. reset_s: until all of it can be used again."""

    limit: int
    remaining: int
    reset_s: float


class Standings:
    """Those of one response, in its record; empty until the ledger has answered.

    is_counted: the request is among those that the limits count. is_costly: it took so much work
    that it counts even if it is refused.
    """

    __slots__ = ("_look", "_meters", "is_costly", "is_counted")

    def __init__(self) -> None:
        self.is_counted = self.is_costly = False
        self._meters: CallerMeters | None = None
        self._look: Look = NOTHING.__getitem__

    @property
    def are_known(self) -> bool:
        return self._meters is not None

    def set(self, meters: CallerMeters, look: Look) -> None:
        self._meters, self._look = meters, look

    @property
    def requests(self) -> Standing | None:
        """The limit on requests with the least left; None without a limit."""
        return None if self._meters is None else self._next(self._meters.request_windows)

    @property
    def tokens(self) -> Standing | None:
        return None if self._meters is None else self._next(self._meters.token_windows)

    @property
    def budget(self) -> float | None:
        """What is left of the month's, in the currency of the prices."""
        left = None if self._meters is None else self._left(self._meters.budgets)
        return None if left is None else left / NANOS

    @property
    def monthly_tokens(self) -> int | None:
        return None if self._meters is None else self._left(self._meters.monthly_tokens)

    def _next(self, index: Sequence[int]) -> Standing | None:
        """The one with the least left."""
        if not index or self._meters is None:
            return None
        first, look = index[0], self._look
        left, reset_us = look(first)
        for at in index[1:]:
            if (found := look(at))[0] < left:
                first, (left, reset_us) = at, found
        return Standing(self._meters.meters[first].limit, left, reset_us / 1e6)

    def _left(self, index: Sequence[int]) -> int | None:
        return min((self._look(at)[0] for at in index), default=None)


NOTHING: tuple[tuple[int, int], ...] = ()
