"""A stream that falls silent, or takes too long, ends with an error. Around the engine's deltas,
for the service.

One timer a stream, which looks only when a time is over: a task or a timer a token would cost
more than the token.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from typing import TypeVar

from triton_openai.proxy.domain.errors import DeadlineExceeded, EngineStalled, ServiceError

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeLimits:
    """`silence_s`: in which an item is awaited, before the first too. `whole_s`: from the start."""

    silence_s: float
    whole_s: float


async def limited(
    items: AsyncGenerator[Item, None], limits: TimeLimits, *, since: float | None = None
) -> AsyncGenerator[Item, None]:
    """Yields the items, to one task: a timer cancels it when a time is over.

    Args:
        since: the time of the event loop from which `whole_s` counts; None for now.

    Raises:
        EngineStalled, DeadlineExceeded: a time is over; `items` is closed.
    """
    watch = _Watch(limits, since)
    try:
        async with aclosing(items):
            while True:
                watch.wait()
                try:
                    item = await anext(items)
                except StopAsyncIteration:
                    return
                except asyncio.CancelledError:
                    watch.raise_if_over()
                    raise
                watch.rest()
                yield item
    finally:
        watch.end()


class _Watch:
    """Of the task that makes it: cancels it when it has waited too long."""

    def __init__(self, limits: TimeLimits, since: float | None) -> None:
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.current_task()
        self._is_waiting = False
        self._since = self._loop.time()
        self._end = (self._since if since is None else since) + limits.whole_s
        self._over: ServiceError | None = None
        self._timer: asyncio.Handle = self._loop.call_at(self._due(self._since), self._look)

    def wait(self) -> None:
        self._is_waiting = True
        self._since = self._loop.time()
        if self._since >= self._end:  # what is here already can still be had
            self._timer.cancel()
            self._timer = self._loop.call_soon(self._look)

    def rest(self) -> None:
        self._is_waiting = False

    def end(self) -> None:
        self._is_waiting = False
        self._timer.cancel()

    def raise_if_over(self) -> None:
        if self._over is None:
            return
        if self._task is not None and hasattr(self._task, "uncancel"):  # from Python 3.11 on
            self._task.uncancel()
        raise self._over

    def _look(self) -> None:
        """Nothing is over while nobody waits: `wait` looks again."""
        now = self._loop.time()
        due = self._due(self._since if self._is_waiting else now)
        if due > now:
            self._timer = self._loop.call_at(due, self._look)
        elif self._is_waiting and self._task is not None:
            self._over = self._too_long() if now >= self._end else self._too_silent()
            self._task.cancel()

    def _due(self, silent_since: float) -> float:
        return min(silent_since + self._limits.silence_s, self._end)

    def _too_long(self) -> DeadlineExceeded:
        limit_s = f"{self._limits.whole_s:g}"
        return DeadlineExceeded(f"The request took longer than {limit_s} seconds and was stopped.")

    def _too_silent(self) -> EngineStalled:
        limit_s = f"{self._limits.silence_s:g}"
        return EngineStalled(
            f"The engine said nothing for {limit_s} seconds, and the request was stopped."
        )
