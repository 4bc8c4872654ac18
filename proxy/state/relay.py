"""Gives each request with an Idempotency-Key its answer: its own, a running one, or a kept one.

Called by `api.idempotency`. A generation runs in a task of its own, for as long as somebody reads
it or may still come back.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

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
)
from proxy.state.answer_copy import CopiedAnswer, Copy
from proxy.state.recording import MemoryBudget, Recording
from proxy.state.streams import (
    Claim,
    FoundStream,
    StreamLost,
    StreamStore,
    StreamsUnavailable,
)
from proxy.telemetry.metrics import IdempotencyMetrics

logger = structlog.get_logger(__name__)

UPKEEP_S = 30.0
LEAST_ERROR_STATUS = 400


class RunningAnswer(Recording):
    """abandoned: set when its readers have left, and nobody came back in time. has_failed: the
    stream ended with an error. copy: in the store, where it has one.

    forget: called when nobody may join it any more, and when its memory was given back.
    """

    def __init__(
        self,
        request: KeyedRequest,
        claim: Claim,
        limits: AnswerLimits,
        budget: MemoryBudget,
        forget: Callable[[RunningAnswer], None],
    ) -> None:
        super().__init__(budget, limits.stream_bytes)
        self.request = request
        self.claim = claim
        self.copy: Copy | None = None
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
    def __init__(
        self, store: StreamStore, limits: AnswerLimits, metrics: IdempotencyMetrics
    ) -> None:
        self._limits = limits
        self.budget = MemoryBudget(limits.held_bytes)
        self._store = store
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
        for running in self._running.values():
            if running.copy is not None:
                await running.copy.close()

    async def open(self, request: KeyedRequest, generate: Generate) -> OpenAnswer:
        """
        Raises:
            JoinRefused: there is an answer that this request does not get.
            StreamsUnavailable: nobody can say whether there is one.
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
        """This request's own answer, or one of the store. Other requests with the same key wait
        meanwhile, so that they find it.
        """
        claim = Claim(request, self._store.lease_s)
        claiming = self._claiming[request.id] = asyncio.get_running_loop().create_future()
        try:
            found = await self._store.claim(claim, {"body": request.body})
            if found is not None:
                return await self._found(request, found)
            if request.after:
                await self._end_claim(claim)
                raise JoinRefused(Reason.NOT_KEPT)
            running = self._begin(request, claim, generate)
            return running.enter(0, Outcome.GENERATED)
        except asyncio.CancelledError:
            _spawn(self._end_claim(claim), self._releases)
            raise
        finally:
            del self._claiming[request.id]
            claiming.set_result(None)

    async def _found(self, request: KeyedRequest, found: FoundStream) -> OpenAnswer:
        if found.body != request.body:
            raise JoinRefused(Reason.OTHER_BODY)
        answer = CopiedAnswer(self._store, request, found)
        if found.is_kept and request.after:
            try:
                with contextlib.suppress(StreamLost):  # which its reader finds out
                    await answer.head()
            except BaseException:
                await answer.aclose()
                raise
        return answer

    def _begin(self, request: KeyedRequest, claim: Claim, generate: Generate) -> RunningAnswer:
        running = RunningAnswer(request, claim, self._limits, self.budget, self._forget)
        self._running[request.id] = running
        if self._store.is_shared:
            running.copy = Copy(self._store, claim, running)
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
        running.copy = running.copy or Copy(self._store, running.claim, running)
        try:
            if not await running.copy.written():
                raise StreamsUnavailable("the copy of the answer is not complete")
            await self._store.keep(running.claim, {})
        except StreamsUnavailable:
            self._metrics.count("not_kept")
            return False
        finally:
            await running.copy.close()
        return True

    def _forget(self, running: RunningAnswer) -> None:
        """Nobody may join it any more; also called when its memory was given back."""
        self._metrics.held_bytes.set(self.budget.bytes)
        if self._running.get(running.request.id) is running:
            del self._running[running.request.id]
            _spawn(self._release(running), self._releases)

    async def _release(self, running: RunningAnswer) -> None:
        """After the copy has its end, for those who read it."""
        if running.copy is not None:
            await running.copy.written()
            await running.copy.close()
        await self._end_claim(running.claim)

    async def _end_claim(self, claim: Claim) -> None:
        with contextlib.suppress(StreamsUnavailable):  # it ends by itself
            await self._store.release(claim)

    async def _upkeep(self) -> None:
        while True:
            try:
                self._metrics.stored_bytes.set(await self._store.stored_bytes())
            except StreamsUnavailable as error:
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
