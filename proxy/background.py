"""Work in the background: its end, and rounds of it.

One cancellation is not enough: `asyncio.wait_for` before Python 3.12, and clients of databases,
lose one that arrives together with the result they wait for. A task with an endless loop then runs
on.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

AGAIN_S = 0.2


async def end(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancels them until every one has ended. What they raise is discarded."""
    left = set(tasks)
    while left:
        for task in left:
            task.cancel()
        ended, left = await asyncio.wait(left, timeout=AGAIN_S)
        for task in ended:
            if not task.cancelled():
                task.exception()


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
