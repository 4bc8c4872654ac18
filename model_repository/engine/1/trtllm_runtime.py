"""The `tensorrt_llm` runtime: TensorRT-LLM's LLM API on NVIDIA GPUs, which does the batching.

An event loop in a thread of its own holds one task a job; jobs and cancels reach it from outside.
"""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import trtllm_counts
from port import BadParameter, Job
from stats import Stats
from trtllm_adapters import Adapters
from trtllm_decoder import TrtllmDecoder
from trtllm_library import Library, background_error, is_alive
from trtllm_sampling import Translator

logger = logging.getLogger(__name__)

WATCH_EVERY_S = 0.1
STATS_EVERY_S = 0.5
STATS_WAIT_S = 0.001  # some versions of TensorRT-LLM wait so long in this loop's thread
Died = Callable[[str], None]


class TrtllmRuntime:
    """See port.Runtime. `died` is called once, from the loop's thread, after the jobs' ends."""

    def __init__(self, llm: Any, translator: Translator, died: Died) -> None:
        self.stats = Stats()
        self._llm = llm
        self._decoder = TrtllmDecoder(llm, translator, self.stats)
        self._died = died
        self._death: str | None = None
        self._lock = threading.Lock()
        self._jobs: dict[str, list[Job]] = {}
        self._tasks: dict[Job, asyncio.Task[None]] = {}
        self._beside: list[asyncio.Task[None]] = []
        self._is_counting = False
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="trtllm-runtime", daemon=True)
        self._thread.start()

    @classmethod
    def load(cls, artifacts: Path, parameters: dict[str, str], died: Died) -> TrtllmRuntime:
        """`parameters` are the engine's Triton config parameters.

        Raises:
            StartFailed: TensorRT-LLM is not there, or does not start the model.
        """
        backend, arguments = parameters["trtllm_backend"], parameters["llm_args"]
        library = Library.load(backend)
        translator = Translator(
            library=library,
            adapters=Adapters.of(library, parameters["lora_adapters"]),
            backend=backend,
            end_ids=tuple(int(token) for token in parameters["end_ids"].split(",") if token),
            logits_size=int(parameters["logits_size"]),
            has_guides=bool(json.loads(arguments).get("guided_decoding_backend")),
        )
        engine = (artifacts / "engine").resolve()  # ranks on other nodes read it, too
        return cls(library.start(engine, arguments), translator, died)

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
        self._beside.append(self._loop.create_task(self._watch()))
        self._loop.run_forever()
        running = [*self._beside, *self._tasks.values()]
        for task in running:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*running, return_exceptions=True))
        self._loop.close()

    # in the loop's thread

    def _begin(self, job: Job) -> None:
        if not self._is_counting:  # asked before its first request, it complains in the log
            self._is_counting = True
            self._beside.append(self._loop.create_task(self._count()))
        task = self._tasks[job] = self._loop.create_task(self._generate(job))
        task.add_done_callback(partial(self._ended, job))
        if job.is_cancelled or self._death is not None:
            task.cancel()

    def _cancel(self, job: Job) -> None:
        if job in self._tasks:
            self._tasks[job].cancel()

    async def _generate(self, job: Job) -> None:
        try:
            await self._decoder.decode(job)
        except BadParameter as refusal:
            job.sink.refuse(refusal.param, str(refusal))
        except Exception as error:
            logger.exception("generation failed")
            job.sink.fail(f"generation failed: {error}")
            self._check_alive(error)

    def _ended(self, job: Job, task: asyncio.Task[None]) -> None:
        """A task that was cancelled has not ended its job, and may never have begun it."""
        if task.cancelled() and self._death is not None:
            job.sink.fail(self._death)
        elif task.cancelled():
            job.sink.cancelled()
        del self._tasks[job]
        with self._lock:
            jobs = self._jobs[job.request_id]
            jobs.remove(job)
            if not jobs:
                del self._jobs[job.request_id]

    async def _watch(self) -> None:
        """For callers that have gone, and for an executor that has."""
        while True:
            await asyncio.sleep(WATCH_EVERY_S)
            for job in list(self._tasks):
                if job.sink.is_abandoned():
                    self._cancel(job)
            self._check_alive(None)

    def _check_alive(self, error: Exception | None) -> None:
        if self._death is None and not is_alive(self._llm):
            reason = error or background_error(self._llm) or "it gave no reason"
            self._death = f"TensorRT-LLM's executor has ended: {reason}"
            self._beside.append(self._loop.create_task(self._end_all(self._death)))

    async def _end_all(self, reason: str) -> None:
        running = list(self._tasks.values())
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        self._died(reason)

    def _iterations(self) -> Any:
        """Once these ran out they stay so until the next request comes, unless told otherwise."""
        iterations = self._llm.get_stats_async(timeout=STATS_WAIT_S)
        if hasattr(iterations, "mark_undone"):  # there may be none at all
            iterations.mark_undone()
        return iterations

    async def _count(self) -> None:
        try:
            while True:
                await asyncio.sleep(STATS_EVERY_S)
                async for iteration in self._iterations():
                    trtllm_counts.take(self.stats, iteration)
                if not self._tasks:
                    trtllm_counts.rested(self.stats)
        except Exception:
            logger.exception("TensorRT-LLM gives no statistics from here on")
