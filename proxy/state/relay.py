"""Gives each request with an Idempotency-Key its answer: its own, a running one, or a kept one.

Called by `api.idempotency`. A generation runs in a task of its own, for as long as somebody reads
it or may still come back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from secrets import token_hex
from typing import Any, Protocol

import structlog
from typing_extensions import Self

from proxy import background
from proxy.state.answer import (
    AnswerLimits,
    JoinRefused,
    KeyedRequest,
    OpenAnswer,
    Outcome,
    Reason,
    RecordsUnavailable,
)
from proxy.state.recording import MemoryBudget, Recording
from proxy.telemetry.metrics import IdempotencyMetrics

logger = structlog.get_logger(__name__)

UPKEEP_S = 30.0
LEAST_ERROR_STATUS = 400


class Records(Protocol):
    """Claims and kept answers: of one proxy in memory, of several in Redis. `claim`, `keep` and
    `stored_bytes` raise RecordsUnavailable where the records cannot be used.
    """

    async def claim(self, request: KeyedRequest, token: str) -> OpenAnswer | None:
        """Claims the answer for `token`: None, and the caller generates it. Else returns the answer
        that another proxy generates, or that is kept.

        Raises:
            JoinRefused: this request does not get that answer.
        """
        ...

    def published(self, running: RunningAnswer) -> None:
        """Called when the generation of a claim begins."""
        ...

    async def keep(self, running: RunningAnswer) -> None:
        """Keeps the finished answer, in place of the claim. The oldest may have to make room."""
        ...

    async def release(self, request: KeyedRequest, token: str) -> None:
        """Ends a claim, and keeps nothing. Never fails."""
        ...

    async def stored_bytes(self) -> int:
        """Removes what has expired; how many bytes are kept then."""
        ...

    async def close(self) -> None:
        """Called after the last request."""
        ...


class RunningAnswer(Recording):
    """abandoned: set when its readers have left, and nobody came back in time. has_failed: the
    stream ended with an error.

    forget: called when nobody may join it any more, and when its memory was given back.
    """

    def __init__(
        self,
        request: KeyedRequest,
        token: str,
        limits: AnswerLimits,
        budget: MemoryBudget,
        forget: Callable[[RunningAnswer], None],
    ) -> None:
        super().__init__(budget, limits.answer_bytes)
        self.request = request
        self.token = token
        self.abandoned = asyncio.Event()
        self.has_failed = False
        self.is_private = request.is_private
        self._limits = limits
        self._forget = forget
        self._is_over = self._is_closed = False
        self._timer: asyncio.TimerHandle | None = None
        self.readers_changed()

    @property
    def is_good(self) -> bool:
        """Whether another request with the same key may get it. An error is not: it may be over."""
        is_answer = self.head is not None and self.head.status < LEAST_ERROR_STATUS
        return self.is_complete and is_answer and not self.has_failed

    @property
    def can_be_joined(self) -> bool:
        return not self.abandoned.is_set() or (self._is_over and self.is_good)

    @property
    def may_be_kept(self) -> bool:
        return self.is_good and self._limits.keep_s > 0 and not self.is_private and self.is_whole

    def linger(self) -> None:
        """The generation has ended. A good answer stays in memory for those who come back."""
        self._is_over = True
        if not self.is_good or self.request.is_shared:
            self.close()
        else:
            self.readers_changed()

    def close(self) -> None:
        """Lets nobody join. Current readers continue; the answer is dropped after the last one."""
        self._is_over = self._is_closed = True
        self._forget(self)
        self.readers_changed()

    def readers_changed(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self.readers:
            return
        if self._is_closed:
            self.clear()
            self._forget(self)
            return
        is_resumable = self._is_over or (self.head is not None and self.head.has_events)
        grace_s = self._limits.resume_grace_s if is_resumable else self._limits.grace_s
        end = self.close if self._is_over else self.abandoned.set
        self._timer = asyncio.get_running_loop().call_later(grace_s, end)


Generate = Callable[[RunningAnswer], Awaitable[None]]


class Relay:
    def __init__(self, records: Records, limits: AnswerLimits, metrics: IdempotencyMetrics) -> None:
        self._limits = limits
        self.budget = MemoryBudget(limits.held_bytes)
        self._records = records
        self._metrics = metrics
        self._running: dict[bytes, RunningAnswer] = {}
        self._claiming: dict[bytes, asyncio.Future[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._releases: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        _spawn(self._upkeep(), self._tasks)
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await background.end(self._tasks)
        while self._releases:
            await asyncio.wait(self._releases)
        await self._records.close()

    async def open(self, request: KeyedRequest, generate: Generate) -> OpenAnswer:
        """
        Raises:
            JoinRefused: there is an answer that this request does not get.
            RecordsUnavailable: nobody can say whether there is one.
        """
        while True:
            while (claiming := self._claiming.get(request.id)) is not None:
                await asyncio.wait((claiming,))
            running = self._running.get(request.id)
            if running is None:
                return await self._claim(request, generate)
            if running.can_be_joined:
                return self._joined(running, request)
            task = running.task
            assert task is not None  # it began at once
            await asyncio.wait((task,))  # then it has gone, or can be joined

    def _joined(self, running: RunningAnswer, request: KeyedRequest) -> OpenAnswer:
        if running.request.body != request.body:
            raise JoinRefused(Reason.OTHER_BODY)
        if running.readers >= self._limits.readers:
            raise JoinRefused(Reason.TOO_MANY_READERS)
        return running.enter(request.after)

    async def _claim(self, request: KeyedRequest, generate: Generate) -> OpenAnswer:
        """This request's own answer, or one of the records. Other requests with the same key wait
        meanwhile, so that they find it.
        """
        token = token_hex(16)
        claiming = self._claiming[request.id] = asyncio.get_running_loop().create_future()
        try:
            found = await self._records.claim(request, token)
            if found is not None:
                return found
            if request.after:
                await self._records.release(request, token)
                raise JoinRefused(Reason.NOT_KEPT)
            running = self._begin(request, token, generate)
            return running.enter(0, Outcome.GENERATED)
        except asyncio.CancelledError:
            self._release(request, token)
            raise
        finally:
            del self._claiming[request.id]
            claiming.set_result(None)

    def _begin(self, request: KeyedRequest, token: str, generate: Generate) -> RunningAnswer:
        running = RunningAnswer(request, token, self._limits, self.budget, self._forget)
        self._running[request.id] = running
        self._records.published(running)
        running.task = _spawn(self._generate(running, generate), self._tasks)
        return running

    async def _generate(self, running: RunningAnswer, generate: Generate) -> None:
        try:
            await generate(running)
        finally:
            if not running.is_complete:
                running.lose()
            if running.may_be_kept and await self._kept(running):
                self._running.pop(running.request.id, None)
                running.close()
            else:
                running.linger()

    async def _kept(self, running: RunningAnswer) -> bool:
        try:
            await self._records.keep(running)
        except RecordsUnavailable:
            self._metrics.count("not_kept")
            return False
        return True

    def _forget(self, running: RunningAnswer) -> None:
        """Nobody may join it any more; also called when its memory was given back."""
        self._metrics.held_bytes.set(self.budget.bytes)
        if self._running.get(running.request.id) is running:
            del self._running[running.request.id]
            self._release(running.request, running.token)

    def _release(self, request: KeyedRequest, token: str) -> None:
        _spawn(self._records.release(request, token), self._releases)

    async def _upkeep(self) -> None:
        while True:
            try:
                self._metrics.stored_bytes.set(await self._records.stored_bytes())
            except RecordsUnavailable as error:
                logger.warning(
                    "idempotency: records are unavailable",
                    error=str(error),
                    advice="look at the server that LEDGER_URL names",
                )
            self._metrics.held_bytes.set(self.budget.bytes)
            await asyncio.sleep(UPKEEP_S)


def _spawn(work: Coroutine[Any, Any, None], tasks: set[asyncio.Task[None]]) -> asyncio.Task[None]:
    task = asyncio.create_task(work)
    tasks.add(task)
    task.add_done_callback(tasks.discard)
    return task
