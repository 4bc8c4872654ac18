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

from proxy.domain.errors import DeadlineExceeded, EngineStalled, ServiceError

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class TimeLimits:
    """`silence_s`: in which an item is awaited, before the first too. `whole_s`: from the start."""

    silence_s: float
    whole_s: float


async def limited(
    items: AsyncGenerator[Item, None], limits: TimeLimits
) -> AsyncGenerator[Item, None]:
    """The items, for one task.

    Raises:
        EngineStalled, DeadlineExceeded: a time is over; `items` is closed.
    """
    watch = _Watch(limits)
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

    def __init__(self, limits: TimeLimits) -> None:
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.current_task()
        self._is_waiting = False
        self._since = 0.0
        self._end = self._loop.time() + limits.whole_s
        self._over: ServiceError | None = None
        self._has_cancelled = False
        first_s = min(limits.silence_s, limits.whole_s)
        self._timer = self._loop.call_later(first_s, self._look)

    def wait(self) -> None:
        if self._over is not None:
            raise self._over
        self._is_waiting = True
        self._since = self._loop.time()

    def rest(self) -> None:
        self._is_waiting = False

    def end(self) -> None:
        self._is_waiting = False
        self._timer.cancel()

    def raise_if_over(self) -> None:
        if self._over is None or not self._has_cancelled:
            return
        if self._task is not None and hasattr(self._task, "uncancel"):  # from Python 3.11 on
            self._task.uncancel()
        raise self._over

    def _look(self) -> None:
        now = self._loop.time()
        silent_until = (self._since if self._is_waiting else now) + self._limits.silence_s
        if now >= self._end:
            limit = f"{self._limits.whole_s:g} seconds"
            self._give_up(
                DeadlineExceeded(f"The request took longer than {limit} and was stopped.")
            )
        elif now >= silent_until:
            limit = f"{self._limits.silence_s:g} seconds"
            self._give_up(
                EngineStalled(f"The engine said nothing for {limit}, and the request was stopped.")
            )
        else:
            self._timer = self._loop.call_at(min(silent_until, self._end), self._look)

    def _give_up(self, error: ServiceError) -> None:
        """Now, or when the next item is awaited."""
        self._over = error
        if self._is_waiting and self._task is not None:
            self._has_cancelled = True
            self._task.cancel()
