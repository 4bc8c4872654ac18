"""Keeps places for callers that were refused, for the time at which they were told to return.

Without it, callers that never waited would take the places of those that return on time.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort

GRACE_S = 3.0  # `Retry-After` is rounded up to a second, and a connection takes its time
KEPT = 4  # promises, for each place
EARLY_S = 0.05  # clients round, too


class Promises:
    """limit: of places. Half of them are kept for callers that return, at most: callers that do not
    return cannot empty the queue.
    """

    __slots__ = ("_times", "limit")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._times: list[float] = []

    def has_place(self, taken: int, now: float) -> bool:
        """Whether there is a place for a stream that comes now."""
        times = self._times
        if times and times[0] + GRACE_S < now:
            del times[: bisect_left(times, now - GRACE_S)]
        free = self.limit - taken
        return free > 0 and (self._is_due(now) or free > min(len(times), self.limit // 2))

    def keep(self, now: float) -> None:
        """A stream has taken a place; if one was promised for this time, it is that one."""
        if self._is_due(now):
            del self._times[0]

    def missing(self, taken: int) -> int:
        """How many places must become free, until there is one for which nobody was told."""
        return max(len(self._times) + 1 - (self.limit - taken), 1)

    def latest(self) -> float:
        return self._times[-1] if self._times else -math.inf

    def add(self, time: float) -> None:
        if len(self._times) < KEPT * self.limit:
            insort(self._times, time)

    def _is_due(self, now: float) -> bool:
        return bool(self._times) and self._times[0] <= now + EARLY_S
