"""Gives each request with an Idempotency-Key its answer: its own, a running one, or a kept one.

Called by `api.idempotency`. A generation runs in a task of its own, for as long as somebody reads
it or may still come back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from secrets import token_hex
from typing import Any

import structlog
from typing_extensions import Self

from proxy import background
from proxy.idempotency.answer import (
    JoinRefused,
    OpenAnswer,
    Outcome,
    Reason,
    RecordsUnavailable,
)
from proxy.idempotency.part_window import MemoryBudget
from proxy.idempotency.port import Records
from proxy.idempotency.request import KeyedRequest
from proxy.idempotency.running import LocalAnswer, RunningAnswer
from proxy.telemetry.idempotency_metrics import IdempotencyMetrics

logger = structlog.get_logger(__name__)

ANSWER_BYTES = 8_000_000  # a larger answer is not kept, nor joined from its beginning
TRIES = 8  # while an answer with the same key is abandoned
UPKEEP_S = 30.0

Generate = Callable[[RunningAnswer], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class RelayLimits:
    """grace_s: how long a generation goes on after its last reader has left; resume_grace_s: the
    same for streams of events, and how long a finished answer that is not kept can be resumed.
    answer_bytes: of one answer. memory_bytes: of all in this process. readers: of one answer, in
    this process. keeps: whether finished answers are kept.
    """

    grace_s: float
    resume_grace_s: float
    answer_bytes: int = ANSWER_BYTES
    memory_bytes: int
    readers: int = 32
    keeps: bool


class Relay:
    def __init__(self, records: Records, limits: RelayLimits, metrics: IdempotencyMetrics) -> None:
        self.limits = limits
        self.budget = MemoryBudget(limits.memory_bytes)
        self._records = records
        self._metrics = metrics
        self._running: dict[bytes, RunningAnswer] = {}
        self._claiming: dict[bytes, asyncio.Future[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._releases: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        await self._records.__aenter__()
        _spawn(self._upkeep(), self._tasks)
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await background.end(self._tasks)
        while self._releases:
            await asyncio.wait(self._releases)
        await self._records.__aexit__()

    async def open(self, request: KeyedRequest, generate: Generate) -> OpenAnswer:
        """
        Raises:
            JoinRefused: there is an answer that this request does not get.
            RecordsUnavailable: nobody can say whether there is one.
        """
        for _ in range(TRIES):
            await self._claimed(request)
            running = self._running.get(request.id)
            if running is not None and not running.abandoned.is_set():
                return self._joined(running, request)
            if running is None or running.task is None:
                return await self._claim(request, generate)
            await asyncio.wait((running.task,))
        raise RecordsUnavailable("an abandoned answer with this key does not end")

    async def _claimed(self, request: KeyedRequest) -> None:
        """Waits until no request of this process is claiming the answer."""
        while (claiming := self._claiming.get(request.id)) is not None:
            await asyncio.wait((claiming,))

    def _joined(self, running: RunningAnswer, request: KeyedRequest) -> OpenAnswer:
        if running.request.body != request.body:
            raise JoinRefused(Reason.OTHER_BODY)
        if running.recording.readers >= self.limits.readers:
            raise JoinRefused(Reason.TOO_MANY_READERS)
        return LocalAnswer(running, Outcome.JOINED, request.after)

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
            return LocalAnswer(running, Outcome.GENERATED, 0)
        except asyncio.CancelledError:
            self._release(request, token)
            raise
        finally:
            del self._claiming[request.id]
            claiming.set_result(None)

    def _begin(self, request: KeyedRequest, token: str, generate: Generate) -> RunningAnswer:
        running = RunningAnswer(request, token, self.limits, self.budget, self._forget)
        self._running[request.id] = running
        self._records.published(request, token, running.recording)
        running.task = _spawn(self._generate(running, generate), self._tasks)
        return running

    async def _generate(self, running: RunningAnswer, generate: Generate) -> None:
        try:
            await generate(running)
        finally:
            if not running.recording.is_complete:
                running.recording.lose()
            if not running.is_good or not (running.may_be_kept and await self._kept(running)):
                running.linger()
            else:
                self._running.pop(running.request.id, None)
                running.close()

    async def _kept(self, running: RunningAnswer) -> bool:
        try:
            await self._records.keep(running.request, running.token, running.recording)
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
