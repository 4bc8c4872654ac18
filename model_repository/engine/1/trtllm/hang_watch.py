"""Notices that TensorRT-LLM makes no progress although requests are in flight."""

from __future__ import annotations

import time
from collections.abc import Callable


class HangWatch:
    """Progress is a response to a request, or an iteration in the statistics.

    limit_s: without progress for longer than this, TensorRT-LLM hangs; 0 for no limit.
    """

    def __init__(self, limit_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.limit_s = limit_s
        self._clock = clock
        self._last = clock()

    def progressed(self) -> None:
        self._last = self._clock()

    def stalled_s(self, in_flight: int) -> float:
        """Seconds without progress. Call it regularly: time without requests does not count."""
        if not in_flight:
            self.progressed()
        return self._clock() - self._last

    def is_hung(self, in_flight: int) -> bool:
        return 0 < self.limit_s < self.stalled_s(in_flight)
