"""Whether an engine that batches by itself makes progress while requests are in flight."""

from __future__ import annotations

import time
from collections.abc import Callable


class HangWatch:
    """Progress is a response to a request, or an iteration in the statistics.

    Time without requests does not count. It does not start the count again either: proxies cancel
    requests that stall (STALL_TIMEOUT_S), and a cancelled request is not progress.

    limit_s: without progress for longer than this, the engine hangs; 0 for no limit.
    """

    def __init__(self, limit_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.limit_s = limit_s
        self._clock = clock
        self._waited_s = 0.0
        self._seen_at = clock()

    def progressed(self) -> None:
        self._waited_s, self._seen_at = 0.0, self._clock()

    def stalled_s(self, in_flight: int) -> float:
        """Seconds with requests since the last progress. Call it often: it measures by its calls.

        in_flight: the requests since the last call.
        """
        now = self._clock()
        if in_flight:
            self._waited_s += now - self._seen_at
        self._seen_at = now
        return self._waited_s

    def is_hung(self, in_flight: int) -> bool:
        return 0 < self.limit_s < self.stalled_s(in_flight)
