"""Ends the wait for an engine's next delta: it is silent, takes too long, or is interrupted.

One timer a stream, which looks only when a time is over: a task or a timer a token would cost
more than the token.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from proxy.domain.errors import DeadlineExceeded, EngineStalled
from proxy.domain.interrupt import Interrupt

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeLimits:
    """`silence_s`: in which a delta is awaited, before the first too.

    `short_silence_s`: the same, for a stream that has begun and can move to another endpoint.
    """

    silence_s: float
    short_silence_s: float = math.inf


class TimeWatch:
    """Cancels the task that makes it while that waits too long, and says why. whole_s: from now on.

        watch.wait()
        try:
            delta = await anext(deltas)
        except asyncio.CancelledError:
            watch.raise_if_over()
            raise
        watch.is_waiting = False

    `wait` and `raise_if_over` raise EngineStalled, DeadlineExceeded, or the interrupt's error.
    """

    def __init__(self, limits: TimeLimits, whole_s: float) -> None:
        self._limits = limits
        self._whole_s = whole_s
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.current_task()
        self._cancels = self._cancelling()
        self.began = self._since = self._loop.time()
        self._deadline = self._end = self.began + whole_s
        self.is_waiting = False
        self._silence_s = limits.silence_s
        self._can_move: Callable[[], bool] | None = None
        self._interrupt: Interrupt | None = None
        self._over: Exception | None = None
        self._timer: asyncio.Handle = self._loop.call_at(self._next_look(self.began), self._look)

    def begin(self, interrupt: Interrupt | None) -> None:
        """Another engine stream begins. What interrupts it may have been fired already."""
        self._interrupt = interrupt
        if interrupt is not None:
            interrupt.listen(self._interrupted)

    def leave(self) -> None:
        """That engine stream is over, and nobody waits for it any more."""
        if self._interrupt is not None:
            self._interrupt.listen(None)
        self._interrupt = self._can_move = self._over = None
        self.is_waiting = False
        self._end = self._deadline

    def see_first(self, can_move: Callable[[], bool] | None) -> None:
        """Its first delta came. can_move: whether it may move now; None if it never may."""
        self._can_move = can_move

    def wait(self) -> None:
        self.is_waiting = True
        self._since = self._loop.time()
        if self._since >= self._end:
            self._be_late()

    @property
    def waiting_since(self) -> float:
        """When the last wait began, which is just after the delta before it. Of time.monotonic."""
        return self._since

    def end(self) -> None:
        self.leave()
        self._timer.cancel()

    def raise_if_over(self) -> None:
        """Returns where the task was cancelled by somebody else, too."""
        self.is_waiting = False
        over = self._take_over()
        if over is None:
            return
        if self._task is not None and hasattr(self._task, "uncancel"):  # from Python 3.11 on
            self._task.uncancel()
        if self._cancelling() <= self._cancels:
            raise over

    async def within(self, work: Awaitable[Result]) -> Result:
        """What `work` returns. Only the whole time ends it: it is not the engine that is silent."""
        self._silence_s = math.inf
        try:
            self.wait()
            return await work
        except asyncio.CancelledError:
            self.raise_if_over()
            raise
        finally:
            self.is_waiting, self._silence_s = False, self._limits.silence_s

    def _interrupted(self, error: Exception) -> None:
        if self._over is None:
            self._over = error
            self._end = -math.inf  # `wait` raises it
            if self.is_waiting and self._task is not None:
                self._task.cancel()

    def _be_late(self) -> None:
        over = self._take_over()
        if over is not None:
            self.is_waiting = False
            raise over
        self._timer.cancel()
        self._timer = self._loop.call_soon(self._look)  # what is here already can still be had

    def _take_over(self) -> Exception | None:
        over, self._over = self._over, None
        self._end = self._deadline
        return over

    def _look(self) -> None:
        """Nothing is over while nobody waits: `wait` looks again."""
        now = self._loop.time()
        over = self._what_is_over(now) if self.is_waiting else None
        if over is not None:
            self._interrupted(over)
        elif now < self._deadline:
            self._timer = self._loop.call_at(self._next_look(now), self._look)

    def _next_look(self, now: float) -> float:
        """Also where a silence is no fault at present, and may be one soon."""
        since, limits = self._since if self.is_waiting else now, self._limits
        short, long = since + limits.short_silence_s, since + limits.silence_s
        if short <= now:
            short += now - since
        if long <= now:
            long += now - since
        return min(self._deadline, short, long)

    def _what_is_over(self, now: float) -> Exception | None:
        if now >= self._deadline:
            return DeadlineExceeded(
                f"The request took longer than {self._whole_s:g} seconds and was stopped."
            )
        if now >= self._since + self._silence_s:
            return _stalled(self._silence_s)
        short_s = self._limits.short_silence_s
        if self._can_move is not None and now >= self._since + short_s and self._can_move():
            return _stalled(short_s)
        return None

    def _cancelling(self) -> int:
        """How often somebody has cancelled the task; 0 before Python 3.11, which does not count."""
        task = self._task
        return task.cancelling() if task is not None and hasattr(task, "cancelling") else 0


def _stalled(limit_s: float) -> EngineStalled:
    return EngineStalled(
        f"The engine said nothing for {limit_s:g} seconds, and the request was stopped."
    )
