"""The thread of the `onnx` runtime, which runs the scheduler step by step.

Jobs and cancels reach the scheduler between two steps.
"""

from __future__ import annotations

import logging
import os
import threading
from pathlib import Path

from block_log import BlockLog
from guides.compiler import GuideCompiler
from inbox import Inbox
from onnx_cpu.decoder import OnnxDecoder
from onnx_cpu.prefix_cache import BLOCK
from onnx_cpu.scheduler import Scheduler, SchedulerConfig
from port import Job
from stats import Stats

logger = logging.getLogger(__name__)

GUIDE_POLL_S = 0.005
REST_S = 1.0
ARRIVALS_A_STEP = 32  # adding a long prompt with penalties takes part of a millisecond
GUIDE_CACHE_BYTES = 200_000_000
GUIDE_THREADS = 2  # while one compiles a hard guide, the other compiles the rest


class OnnxRuntime:
    """See port.Runtime. Everything behind the port runs in its thread."""

    def __init__(
        self,
        decoder: OnnxDecoder,
        compiler: GuideCompiler,
        config: SchedulerConfig,
        *,
        end_ids: frozenset[int],
        blocks: BlockLog,
    ) -> None:
        self.blocks = blocks
        self._inbox = Inbox()
        self._compiler = compiler
        self._scheduler = Scheduler(
            decoder, compiler, config, end_ids=end_ids, ended=self._inbox.forget, blocks=blocks
        )
        self._thread = threading.Thread(target=self._work, name="onnx-runtime", daemon=True)
        self._thread.start()

    @classmethod
    def load(cls, artifacts: Path, parameters: dict[str, str]) -> OnnxRuntime:
        """`parameters` are the engine's Triton config parameters."""
        end_ids = frozenset(int(token) for token in parameters["end_ids"].split(",") if token)
        rows = int(parameters["max_rows"])
        stall_ms = float(parameters["prefill_stall_ms"])
        config = SchedulerConfig(
            rows=rows,
            step_tokens=int(parameters["max_step_tokens"]),
            kv_bytes=int(parameters["kv_cache_bytes"]),
            stall_s=stall_ms / 1000 or None,
            most_replayed=int(parameters["exact_resume_tokens"]),
        )
        compiler = GuideCompiler(
            artifacts / "guide.json", cache_bytes=GUIDE_CACHE_BYTES, threads=GUIDE_THREADS
        )
        compiler.start()  # while the decoder loads
        decoder = OnnxDecoder(
            artifacts / "engine",
            threads=int(parameters["threads"]) or os.cpu_count() or 1,
            rows=rows + 1,  # one for swapping, see Batch
            context_length=int(parameters["context_length"]),
        )
        compiler.wait_until_started()
        blocks = BlockLog(parameters["public_name"], BLOCK)
        return cls(decoder, compiler, config, end_ids=end_ids, blocks=blocks)

    @property
    def stats(self) -> Stats:
        return self._scheduler.stats

    def submit(self, job: Job) -> None:
        self._inbox.submit(job)

    def cancel(self, request_id: str) -> bool:
        return self._inbox.cancel(request_id)

    def close(self) -> None:
        self._inbox.close()
        self._thread.join()
        self._compiler.close()

    def _work(self) -> None:
        pause_s: float | None = None
        while self._wait(pause_s):
            try:
                self._take_arrived(ARRIVALS_A_STEP)
                is_working = self._scheduler.step()
            except Exception as error:  # a bug: end the running jobs, keep the thread
                logger.exception("a scheduler step failed")
                self._scheduler.fail_all(error)
                is_working = True
            pause_s = None if is_working else GUIDE_POLL_S
        self._take_arrived(None)
        self._scheduler.end_all()

    def _wait(self, pause_s: float | None) -> bool:
        """Waits until there is work; False when it is time to close.

        pause_s: how long to wait for guides to compile, if the scheduler has nothing else to do.
        """
        inbox = self._inbox
        with inbox.changed:
            if pause_s is not None and not inbox.has_arrived and not inbox.is_closing:
                inbox.changed.wait(pause_s)
            while not (inbox.has_arrived or inbox.is_closing or self._scheduler.has_work):
                if not inbox.changed.wait(REST_S):
                    self._scheduler.rest()
            return not inbox.is_closing

    def _take_arrived(self, at_most: int | None) -> None:
        for job in self._inbox.take(at_most):
            self._scheduler.add(job)
