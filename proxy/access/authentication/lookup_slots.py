"""Bounds the lookups in the store, so that random keys cannot flood it. Used by RecordCache."""

from __future__ import annotations

import asyncio
from types import TracebackType

from proxy.domain.key_records import KeysUnavailable


class LookupSlots:
    """`async with`: at most `at_once` lookups run, `waiting` more wait, and one more is refused.

    Raises KeysUnavailable: too many wait.
    """

    def __init__(self, *, at_once: int = 8, waiting: int = 256) -> None:
        self._running = asyncio.Semaphore(at_once)
        self._most = at_once + waiting
        self._count = 0

    async def __aenter__(self) -> None:
        if self._count >= self._most:
            raise KeysUnavailable("too many unknown keys are being looked up")
        self._count += 1
        try:
            await self._running.acquire()
        except BaseException:
            self._count -= 1
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: object, trace: TracebackType | None
    ) -> None:
        self._count -= 1
        self._running.release()
