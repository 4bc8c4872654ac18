"""How fast permits come back, and so when the next one will: for a truthful retry-after."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

REMEMBERED = 64  # returns
UNKNOWN_S = 1.0  # before anything has come back
SHORTEST_S, LONGEST_S = 0.1, 60.0  # OpenAI's SDKs give up where they are told more than 120 s


class ServiceRate:
    """Counts permits that come back. `clock`: seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._returns: deque[tuple[float, int]] = deque(maxlen=REMEMBERED)

    def returned(self, permits: int) -> None:
        self._returns.append((self._clock(), permits))

    def wait_s(self, permits: int) -> float:
        """Seconds until so many permits will have come back, at the rate of the last returns."""
        if not self._returns:
            return UNKNOWN_S
        since, first = self._returns[0]
        back = sum(count for _, count in self._returns) - (first if len(self._returns) > 1 else 0)
        rate = back / max(self._clock() - since, 1e-3)
        return min(max(permits / rate, SHORTEST_S), LONGEST_S)
