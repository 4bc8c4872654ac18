"""A lock for each tenant: its jobs run one after another, those of different tenants in parallel.

Used where jobs are costly and workers are few, so that no tenant occupies all of them.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from anyio import fail_after

from proxy.domain.errors import RateLimited
from proxy.domain.identity import tenant_of


class PerCallerLock:
    """The callers of one tenant take turns, so that none of its keys waits behind another's queue.

    waiting: how many jobs one caller may have, the running one included. patience_s: how long a
    job waits for its turn; None for as long as it takes.
    """

    def __init__(self, *, waiting: int = 256, patience_s: float | None = None) -> None:
        self._most = waiting
        self._patience_s = patience_s
        self._locks: defaultdict[tuple[str, ...], asyncio.Lock] = defaultdict(asyncio.Lock)
        self._waiting: Counter[tuple[str, ...]] = Counter()

    @asynccontextmanager
    async def hold(self, caller: str) -> AsyncIterator[None]:
        """Waits for the caller's turn among its own jobs, then for its turn in its tenant.

        Raises RateLimited: the caller has too many jobs waiting, or waited too long.
        """
        tenant = tenant_of(caller)
        own = (*tenant, caller)
        if self._waiting[own] >= self._most:
            raise RateLimited(
                f"{self._most} of your requests are waiting to be checked: send fewer at once."
            )
        taken: list[asyncio.Lock] = []
        self._waiting.update((own, tenant))
        try:
            try:
                with fail_after(self._patience_s):
                    for name in (own, tenant):
                        lock = self._locks[name]
                        await lock.acquire()
                        taken.append(lock)
            except TimeoutError as error:
                raise RateLimited(
                    f"Other requests of yours were checked for {self._patience_s:g} s, before "
                    "this one had its turn: send fewer at once."
                ) from error
            yield
        finally:
            for lock in reversed(taken):
                lock.release()
            for name in (own, tenant):
                self._waiting[name] -= 1
                if not self._waiting[name]:
                    del self._waiting[name], self._locks[name]
