"""The thread of the `tensorrt_llm` runtime: an event loop with one task for each job.

TensorRT-LLM's LLM API does the batching. The loop also collects statistics, and watches for
disconnected clients, and for the end or a hang of TensorRT-LLM's executor.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import threading
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any

from block_log import BlockLog
from port import BadParameter, Job
from stats import Stats
from trtllm import kv_events, progress
from trtllm.generator import Generator
from trtllm.library import (
    PYTORCH,
    Library,
    LoraAdapters,
    background_error,
    is_alive,
    prepare_environment,
)
from trtllm.progress import HangWatch
from trtllm.sampling_params import SamplingTranslator

logger = logging.getLogger(__name__)

WATCH_EVERY_S = 0.1
BLOCK = 32  # tokens: the default of KvCacheConfig.tokens_per_block


class TrtllmRuntime:
    """See port.Runtime.

    If TensorRT-LLM's executor ends or hangs, the runtime ends all jobs and then calls `die` from
    the loop's thread.
    """

    def __init__(
        self,
        llm: Any,
        translator: SamplingTranslator,
        hang_watch: HangWatch,
        die: Callable[[str], None],
        *,
        has_statistics: bool = True,
        blocks: BlockLog | None = None,
    ) -> None:
        self.blocks = blocks
        self.stats = Stats(has_kv_blocks=has_statistics)
        self._llm = llm
        self._hang_watch = hang_watch
        self._generator = Generator(llm, translator, self.stats, hang_watch.progressed, blocks)
        self._die = die
        self._death: str | None = None  # why the executor has ended
        self._lock = threading.Lock()
        self._jobs: dict[str, list[Job]] = {}
        self._tasks: dict[Job, asyncio.Task[None]] = {}
        self._other_tasks: list[asyncio.Task[None]] = []
        self._has_statistics = has_statistics
        self._collectors: list[Callable[[], Coroutine[Any, Any, None]]] = []
        if has_statistics:
            self._collectors.append(
                lambda: progress.collect(
                    llm, self.stats, hang_watch.progressed, lambda: not self._tasks
                )
            )
        if blocks is not None:
            self._collectors.append(lambda: kv_events.collect(llm, blocks))
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="trtllm-runtime", daemon=True)
        self._thread.start()

    def submit(self, job: Job) -> None:
        with self._lock:
            self._jobs.setdefault(job.request_id, []).append(job)
        self._loop.call_soon_threadsafe(self._begin, job)

    def cancel(self, request_id: str) -> bool:
        with self._lock:
            jobs = list(self._jobs.get(request_id, ()))
        for job in jobs:
            job.is_cancelled = True
            self._loop.call_soon_threadsafe(self._cancel, job)
        return bool(jobs)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._llm.shutdown()

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
            await self._generator.generate(job)
        except BadParameter as refusal:
            job.sink.refuse(refusal.param, str(refusal))
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
        self._generator.begun.discard(job)
        with self._lock:
            jobs = self._jobs[job.request_id]
            jobs.remove(job)
            if not jobs:
                del self._jobs[job.request_id]

    async def _watch(self) -> None:
        """Cancels jobs of disconnected clients, and notices the executor's end or hang."""
        while True:
            await asyncio.sleep(WATCH_EVERY_S)
            for job in list(self._tasks):
                if job.sink.is_abandoned():
                    self._cancel(job)
            if not self._has_statistics:
                self._count_jobs()
            self._check_alive(None)
            self._check_progress()

    def _count_jobs(self) -> None:
        """Without statistics, a job counts as waiting up to its first token."""
        self.stats.rows_decoding = len(self._generator.begun)
        self.stats.waiting = len(self._tasks) - self.stats.rows_decoding

    def _check_alive(self, error: Exception | None) -> None:
        if not is_alive(self._llm):
            reason = error or background_error(self._llm) or "it gave no reason"
            self._die_of(f"TensorRT-LLM's executor has ended: {reason}")

    def _check_progress(self) -> None:
        in_flight = len(self._tasks)
        stalled_s = self._hang_watch.stalled_s(in_flight)
        self.stats.seconds_without_progress = stalled_s if in_flight else 0.0
        if self._hang_watch.is_hung(in_flight):
            self._die_of(
                f"TensorRT-LLM hangs: {in_flight} requests are in flight, and for "
                f"{self._hang_watch.limit_s:g} s (gpu.hang_seconds in models.yaml) neither a "
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


def load(artifacts: Path, parameters: dict[str, str], die: Callable[[str], None]) -> TrtllmRuntime:
    """Starts TensorRT-LLM. `parameters` are the engine's Triton config parameters.

    Raises:
        StartFailed: TensorRT-LLM is not installed, or cannot load the model.
    """
    backend, arguments = parameters["trtllm_backend"], parameters["llm_args"]
    prepare_environment(os.environ, parameters)
    library = Library.load(backend)
    given = json.loads(arguments)
    translator = SamplingTranslator(
        library=library,
        adapters=LoraAdapters.of(library, parameters["lora_adapters"]),
        backend=backend,
        end_ids=tuple(int(token) for token in parameters["end_ids"].split(",") if token),
        logits_size=int(parameters["logits_size"]),
        max_log_probs=int(parameters["max_log_probs"]) if parameters["max_log_probs"] else None,
        has_guides=bool(given.get("guided_decoding_backend")),
    )
    cache = given.get("kv_cache_config", {})
    blocks: BlockLog | None = None
    if cache.get("event_buffer_max_size") and not given.get("enable_attention_dp"):
        blocks = BlockLog(parameters["public_name"], cache.get("tokens_per_block", BLOCK))
    engine = (artifacts / "engine").resolve()  # absolute, for ranks on other nodes
    return TrtllmRuntime(
        library.start(engine, arguments),
        translator,
        HangWatch(float(parameters["hang_seconds"])),
        die,
        has_statistics=backend != PYTORCH or bool(given.get("enable_iter_perf_stats")),
        blocks=blocks,
    )
