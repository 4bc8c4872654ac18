"""One at a time for each caller, so that nobody occupies alone what all share."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from triton_openai.proxy.domain.errors import RateLimited


class CallerTurns:
    """`waiting`: of one caller, with the one whose turn it is. Callers do not wait for others."""

    def __init__(self, *, waiting: int = 256) -> None:
        self._most = waiting
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._waiting: Counter[str] = Counter()

    @asynccontextmanager
    async def turn(self, caller: str) -> AsyncIterator[None]:
        """Raises RateLimited: too many of this caller wait."""
        if self._waiting[caller] >= self._most:
            raise RateLimited(
                f"{self._most} of your requests wait to be checked: send fewer at once."
            )
        self._waiting[caller] += 1
        try:
            async with self._turns[caller]:
                yield
        finally:
            self._waiting[caller] -= 1
            if not self._waiting[caller]:
                del self._waiting[caller], self._turns[caller]
