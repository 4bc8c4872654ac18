"""The permit of a stream whose queue is in the parent process. Made by `worker_scheduler`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from triton_openai.proxy.domain.scheduling import Standing


class Connection(Protocol):
    def begin_charging(self, permit: WorkerPermit) -> None: ...

    def release(self, permit: WorkerPermit) -> None: ...


class WorkerPermit:
    """Implements domain.scheduling.Permit.

    number: of the stream, for the parent. turn: set when it may run.
    """

    __slots__ = (
        *("_before", "_connection", "_prompt", "_sent", "_tokens"),
        *("is_released", "moved", "number", "preempted", "took_over", "turn"),
    )

    def __init__(
        self,
        connection: Connection,
        moved: Callable[[Standing], None],
        preempted: Callable[[], None],
    ) -> None:
        self.number = 0
        self.turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.moved = moved
        self.preempted = preempted
        self.is_released = False
        self.took_over = False
        self._connection = connection
        self._tokens: Callable[[], int] | None = None
        self._before = 0
        self._sent = 0
        self._prompt: int | None = None

    def see_prompt(self, uncached_tokens: int) -> None:
        if not self.is_released:
            self._prompt = uncached_tokens
            self._connection.begin_charging(self)

    def meter(self, tokens: Callable[[], int]) -> None:
        """What the stream has generated already was charged with another permit."""
        if not self.is_released:
            self._before = tokens() - self._sent
            self._tokens = tokens
            self._connection.begin_charging(self)

    def release(self) -> None:
        if not self.is_released:
            self.is_released = True
            self._connection.release(self)

    def charges(self) -> tuple[int, int, int | None]:
        """number, tokens so far, and the length of the prompt where it is news."""
        prompt, self._prompt = self._prompt, None
        if self._tokens is not None:
            self._sent = self._tokens() - self._before
        return self.number, self._sent, prompt

    @property
    def has_news(self) -> bool:
        if self._prompt is not None:
            return True
        return self._tokens is not None and self._tokens() - self._before != self._sent
