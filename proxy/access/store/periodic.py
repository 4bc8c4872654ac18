"""Background work in rounds. Used by what writes batches."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable


class Periodic:
    """Calls `work` every `interval_s` seconds. `work` raises nothing.

    A stop waits for the round that runs, and cancels nothing: a database's driver may answer a
    cancellation with an error of its own, which would look like any other failed round.
    """

    def __init__(self, work: Callable[[], Awaitable[None]], interval_s: float) -> None:
        self._work = work
        self._interval_s = interval_s
        self._stopping = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        self._stopping.set()
        if self._task is not None:
            await self._task

    async def _run(self) -> None:
        while not self._stopping.is_set():
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), self._interval_s)
                return
            await self._work()
