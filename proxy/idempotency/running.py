"""An answer that this process generates: until when it runs, and who reads it. Made by `relay`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Protocol

from proxy.idempotency.answer import (
    Head,
    Notice,
    Outcome,
    check_resumption,
)
from proxy.idempotency.part_window import MemoryBudget
from proxy.idempotency.recording import Recording
from proxy.idempotency.request import KeyedRequest

LONGEST_ERROR_STATUS = 400


class Limits(Protocol):
    """See relay.RelayLimits."""

    @property
    def grace_s(self) -> float: ...

    @property
    def resume_grace_s(self) -> float: ...

    @property
    def answer_bytes(self) -> int: ...

    @property
    def keeps(self) -> bool: ...


class RunningAnswer:
    """abandoned: set when its readers have left, and nobody came back in time. has_failed: the
    stream ended with an error.

    forget: called when nobody may join it any more, and when its memory was given back.
    """

    def __init__(
        self,
        request: KeyedRequest,
        token: str,
        limits: Limits,
        budget: MemoryBudget,
        forget: Callable[[RunningAnswer], None],
    ) -> None:
        self.request = request
        self.token = token
        self.recording = Recording(budget, limits.answer_bytes, self._readers_changed)
        self.abandoned = asyncio.Event()
        self.has_failed = False
        self.recording.is_private = request.is_private
        self.task: asyncio.Task[None] | None = None
        self._limits = limits
        self._forget = forget
        self._is_over = self._is_closed = False
        self._timer: asyncio.TimerHandle | None = None
        self._readers_changed(0)

    @property
    def is_good(self) -> bool:
        """Whether another request with the same key may get it. An error is not: it may be over."""
        head = self.recording.head
        is_answer = head is not None and head.status < LONGEST_ERROR_STATUS
        return self.recording.is_complete and is_answer and not self.has_failed

    @property
    def may_be_kept(self) -> bool:
        return self._limits.keeps and not self.recording.is_private and self.recording.is_whole

    def linger(self) -> None:
        """The generation has ended. A good answer stays in memory for those who come back."""
        self._is_over = True
        if not self.is_good or self.request.is_shared:
            self.close()
        else:
            self._readers_changed(self.recording.readers)

    def close(self) -> None:
        """Nobody may join. Those who read it read on; after the last of them, it is gone."""
        self._is_over = self._is_closed = True
        self._forget(self)
        self._readers_changed(self.recording.readers)

    def _readers_changed(self, count: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if count:
            return
        if self._is_closed:
            self.recording.clear()
            self._forget(self)
            return
        end = self.close if self._is_over else self.abandoned.set
        self._timer = asyncio.get_running_loop().call_later(self._grace_s, end)

    @property
    def _grace_s(self) -> float:
        head = self.recording.head
        is_resumable = self._is_over or (head is not None and head.has_events)
        return self._limits.resume_grace_s if is_resumable else self._limits.grace_s


class LocalAnswer:
    """An answer.OpenAnswer of this process."""

    def __init__(self, running: RunningAnswer, outcome: Outcome, after: int) -> None:
        """Raises JoinRefused."""
        self.outcome = outcome
        self._running = running
        self._after = after
        self._reader = running.recording.enter(after)

    async def head(self) -> Head:
        head = await self._running.recording.began()
        check_resumption(self._after, head, self._running.recording.count)
        return head

    def parts(self) -> AsyncGenerator[bytes | Notice, None]:
        return self._running.recording.parts(self._reader)

    def shut_down(self) -> bool:
        task = self._running.task
        return task is not None and (task.done() or task.cancel())

    async def aclose(self) -> None:
        self._running.recording.leave(self._reader)
