"""A lock for each caller: one caller's jobs run one after another, different callers' in parallel.

Used where jobs are costly and workers are few, so that no caller occupies all of them.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from triton_openai.proxy.domain.errors import RateLimited


class PerCallerLock:
    """`waiting`: how many jobs one caller may have, the running one included."""

    def __init__(self, *, waiting: int = 256) -> None:
        self._most = waiting
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._waiting: Counter[str] = Counter()

    @asynccontextmanager
    async def hold(self, caller: str) -> AsyncIterator[None]:
        """Waits for the caller's lock. Raises RateLimited: the caller has too many jobs waiting."""
        if self._waiting[caller] >= self._most:
            raise RateLimited(
                f"{self._most} of your requests are waiting to be checked: send fewer at once."
            )
        self._waiting[caller] += 1
        try:
            async with self._locks[caller]:
                yield
        finally:
            self._waiting[caller] -= 1
            if not self._waiting[caller]:
                del self._waiting[caller], self._locks[caller]
