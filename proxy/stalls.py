"""A stream that falls silent ends with an error. Around the engine's deltas, for the service.

One timer a stream, which looks only when its time is over: a task or a timer a token would cost
more than the token.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TypeVar

from proxy.domain.errors import EngineStalled

Item = TypeVar("Item")


async def watched(
    items: AsyncGenerator[Item, None], timeout_s: float
) -> AsyncGenerator[Item, None]:
    """The items, for one task. Only the time in which one is awaited counts, before the first too.

    Raises:
        EngineStalled: none came for `timeout_s`; `items` is closed.
    """
    watch = _Watch(timeout_s)
    try:
        async with aclosing(items):
            while True:
                watch.wait()
                try:
                    item = await anext(items)
                except StopAsyncIteration:
                    return
                except asyncio.CancelledError:
                    watch.raise_if_stalled()
                    raise
                watch.rest()
                yield item
    finally:
        watch.end()


class _Watch:
    """Of the task that makes it: cancels it when it has waited too long."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.current_task()
        self._is_waiting = False
        self._since = 0.0
        self._has_stalled = False
        self._timer = self._loop.call_later(timeout_s, self._look)

    def wait(self) -> None:
        self._is_waiting = True
        self._since = self._loop.time()

    def rest(self) -> None:
        self._is_waiting = False

    def end(self) -> None:
        self._is_waiting = False
        self._timer.cancel()

    def raise_if_stalled(self) -> None:
        if not self._has_stalled:
            return
        if self._task is not None and hasattr(self._task, "uncancel"):  # from Python 3.11 on
            self._task.uncancel()
        raise EngineStalled(
            f"The engine said nothing for {self._timeout_s:g} seconds, and the request was stopped."
        )

    def _look(self) -> None:
        now = self._loop.time()
        due = (self._since if self._is_waiting else now) + self._timeout_s
        if due > now:
            self._timer = self._loop.call_at(due, self._look)
        elif self._is_waiting and self._task is not None:
            self._has_stalled = True
            self._task.cancel()
