"""What a source that cannot be read logs, and how long it waits before it is read again."""

from __future__ import annotations

import asyncio
import math
import random

import structlog

MOST_REASONS = 8  # logged in one outage
REASON_CHARS = 500
FIRST_S = 0.1
LONGEST_S = 10.0

logger = structlog.get_logger(__name__)


class Outage:
    """source: for the log. A second reason in the same outage is logged, too, but none twice."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._reasons: set[str] = set()

    def failed(self, reason: str) -> None:
        reason = reason[:REASON_CHARS]
        if reason not in self._reasons and len(self._reasons) < MOST_REASONS:
            self._reasons.add(reason)
            logger.warning(
                "endpoints cannot be found",
                source=self._source,
                reason=reason,
                advice="look at the source; the last known endpoints are used until it answers",
            )

    def ended(self) -> None:
        if self._reasons:
            self._reasons.clear()
            logger.info("endpoints can be found again", source=self._source)


class GrowingPause:
    """Doubles from first_s to longest_s, less up to a half at random.

    It begins anew when twice longest_s passed between the end of one pause and the next one.
    """

    def __init__(self, first_s: float = FIRST_S, longest_s: float = LONGEST_S) -> None:
        self._first_s = first_s
        self._longest_s = longest_s
        self._next_s = first_s
        self._ended_at = -math.inf

    async def wait(self) -> None:
        loop = asyncio.get_running_loop()
        if loop.time() - self._ended_at > 2 * self._longest_s:
            self._next_s = self._first_s
        await asyncio.sleep(self._next_s * random.uniform(0.5, 1.0))
        self._next_s = min(2 * self._next_s, self._longest_s)
        self._ended_at = loop.time()
