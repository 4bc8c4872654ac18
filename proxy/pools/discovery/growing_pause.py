"""The pause before a source is read again: longer with each failure in a row."""

from __future__ import annotations

import asyncio
import math
import random

FIRST_S = 0.1
LONGEST_S = 10.0


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
