"""The thread of a runtime whose engine batches by itself: an event loop with one task for each job.

The loop also watches for disconnected clients, and for the end or a hang of the engine.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any

from block_log import BlockLog
from hang_watch import HangWatch
from port import BadParameter, Job, Token
from recent_ids import RecentIds
from stats import Stats

logger = logging.getLogger(__name__)

WATCH_EVERY_S = 0.1
Collector = Callable[[], Coroutine[Any, Any, None]]


class Incomplete(RuntimeError):
    """The engine's response lacks something that the request wants."""


class JobLoop(ABC):
    """See port.Runtime.

    If the engine ends or hangs, the loop ends all jobs and then calls `die` from its thread.

    collectors: run from the first job on, beside the jobs.
    """

    engine: str  # its name in messages
    hang_option: str  # of models.yaml

    def __init__(
        self,
        stats: Stats,
        hang_watch: HangWatch,
        die: Callable[[str], None],
        *,
        blocks: BlockLog | None = None,
        collectors: Sequence[Collector] = (),
    ) -> None:
        self.blocks = blocks
        self.stats = stats
        self._hang_watch = hang_watch
        self._die = die
        self._death: str | None = None  # why the engine has ended
        self._lock = threading.Lock()
        self._jobs: dict[str, list[Job]] = {}
        self._ended = RecentIds()
        self._tasks: dict[Job, asyncio.Task[None]] = {}
        self._other_tasks: list[asyncio.Task[None]] = []
        self._collectors = list(collectors)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._run, name=f"{self.engine}-runtime", daemon=True
        )
        self._thread.start()

    @abstractmethod
    async def generate(self, job: Job) -> None:
        """Returns when the job has ended. A cancel of this task also ends the engine's request.

        Raises:
            BadParameter: the engine does not support a value of the request.
            Exception: generation failed.
        """

    @abstractmethod
    def forget(self, job: Job) -> None:
        """The job has ended, in whatever way."""

    @abstractmethod
    def why_ended(self, error: Exception | None) -> str | None:
        """Why the engine has ended, None while it runs. error: the last one that it raised."""

    @abstractmethod
    def watch(self) -> None:
        """Called ten times a second."""

    @abstractmethod
    def shut_down(self) -> None:
        """Ends the engine."""

    def submit(self, job: Job) -> None:
        with self._lock:
            self._jobs.setdefault(job.request_id, []).append(job)
        self._loop.call_soon_threadsafe(self._begin, job)

    def cancel(self, request_id: str) -> bool:
        with self._lock:
            jobs = list(self._jobs.get(request_id, ()))
            is_known = bool(jobs) or self._ended.has(request_id)
        for job in jobs:
            job.is_cancelled = True
            self._loop.call_soon_threadsafe(self._cancel, job)
        return is_known

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self.shut_down()

    @property
    def in_flight(self) -> int:
        return len(self._tasks)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._other_tasks.append(self._loop.create_task(self._watch()))
        self._loop.run_forever()
        running = [*self._other_tasks, *self._tasks.values()]
        for task in running:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*running, return_exceptions=True))
        self._loop.close()

    # called in the loop's thread

    def _begin(self, job: Job) -> None:
        while self._collectors:  # before the first request, TensorRT-LLM logs a complaint
            self._other_tasks.append(self._loop.create_task(self._collectors.pop()()))
        task = self._tasks[job] = self._loop.create_task(self._generate(job))
        task.add_done_callback(partial(self._forget, job))
        if job.is_cancelled or self._death is not None:
            task.cancel()

    def _cancel(self, job: Job) -> None:
        if job in self._tasks:
            self._tasks[job].cancel()

    async def _generate(self, job: Job) -> None:
        try:
            await self.generate(job)
        except BadParameter as refusal:
            job.sink.refuse(refusal.param, str(refusal), code=refusal.code)
        except Exception as error:
            logger.exception("generation failed")
            job.sink.fail(f"generation failed: {error}")
            self._check_alive(error)

    def _forget(self, job: Job, task: asyncio.Task[None]) -> None:
        """Also ends the job if its task was cancelled, perhaps before its first step."""
        if task.cancelled() and self._death is not None:
            job.sink.fail(self._death)
        elif task.cancelled():
            job.sink.cancelled()
        del self._tasks[job]
        self.forget(job)
        with self._lock:
            jobs = self._jobs[job.request_id]
            jobs.remove(job)
            if not jobs:
                del self._jobs[job.request_id]
                self._ended.add(job.request_id)

    async def _watch(self) -> None:
        """Cancels jobs of disconnected clients, and notices the engine's end or hang."""
        while True:
            await asyncio.sleep(WATCH_EVERY_S)
            for job in list(self._tasks):
                if job.sink.is_abandoned():
                    self._cancel(job)
            self.watch()
            self._check_alive(None)
            self._check_progress()

    def _check_alive(self, error: Exception | None) -> None:
        if (reason := self.why_ended(error)) is not None:
            self._die_of(reason)

    def _check_progress(self) -> None:
        stalled_s = self._hang_watch.stalled_s(self.in_flight)
        self.stats.seconds_without_progress = stalled_s if self.in_flight else 0.0
        if self._hang_watch.is_hung(self.in_flight):
            self._die_of(
                f"{self.engine} hangs: {self.in_flight} requests are in flight, and for "
                f"{self._hang_watch.limit_s:g} s ({self.hang_option} in models.yaml) neither a "
                "response nor an iteration has arrived"
            )

    def _die_of(self, reason: str) -> None:
        if self._death is None:
            self._death = reason
            self._other_tasks.append(self._loop.create_task(self._end_all(reason)))

    async def _end_all(self, reason: str) -> None:
        running = list(self._tasks.values())
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        self._die(reason)


def write_tokens(job: Job, tokens: Sequence[Token], *, is_over: bool, reason: str | None) -> bool:
    """Writes a response's new tokens to the sink; the last one may have none.

    Args:
        is_over: whether this is the last response; returned.
        reason: its finish reason, as the engine calls it.

    Raises:
        Incomplete: the last response has no known reason.
    """
    if not is_over:
        for token in tokens:
            job.sink.token(token, None)
        return False
    match reason:
        case "stop" | "length" as finish:
            for token in tokens[:-1]:
                job.sink.token(token, None)
            if tokens:
                job.sink.token(tokens[-1], finish)
            else:
                job.sink.finished(finish)
        case "cancelled" | "abort":
            job.sink.cancelled()
        case other:
            raise Incomplete(f"the engine ended the request with the reason {other!r}")
    return True
