"""The `onnx` runtime: ONNX Runtime on the CPU, first come, first served, one row at a time.

A thread of its own takes job after job; in-flight batching is to take its place behind the same
port.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections import deque
from pathlib import Path

from onnx_decoder import Logits, OnnxDecoder
from port import FinishReason, Job
from sampling import Sampler

logger = logging.getLogger(__name__)


class _Stopped(Exception):
    """The job at work was cancelled, or its caller has gone."""


class OnnxRuntime:
    """Jobs wait in arrival order; the running one looks at its cancel mark at every step."""

    def __init__(
        self, decoder: OnnxDecoder, end_ids: frozenset[int], *, prefill_chunk_tokens: int
    ) -> None:
        self._decoder = decoder
        self._end_ids = end_ids
        self._prefill_chunk_tokens = prefill_chunk_tokens
        self._waiting: deque[Job] = deque()
        self._running: Job | None = None
        self._is_closing = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._work, name="onnx-runtime", daemon=True)
        self._thread.start()

    @classmethod
    def load(cls, artifacts: Path, parameters: dict[str, str]) -> OnnxRuntime:
        """`parameters` are the engine's Triton config parameters."""
        decoder = OnnxDecoder(
            artifacts / "engine",
            threads=int(parameters["threads"]) or os.cpu_count() or 1,
            context_length=int(parameters["context_length"]),
        )
        return cls(
            decoder,
            frozenset(int(token) for token in parameters["end_ids"].split(",") if token),
            prefill_chunk_tokens=int(parameters["prefill_chunk_tokens"]),
        )

    def submit(self, job: Job) -> None:
        with self._changed:
            self._waiting.append(job)
            self._changed.notify()

    def cancel(self, request_id: str) -> bool:
        with self._changed:
            waiting = [job for job in self._waiting if job.request_id == request_id]
            for job in waiting:
                self._waiting.remove(job)
            running = self._running
            found = running is not None and running.request_id == request_id
            if found and running is not None:
                running.is_cancelled = True
        for job in waiting:
            job.sink.cancelled()
        return found or bool(waiting)

    def close(self) -> None:
        with self._changed:
            self._is_closing = True
            if self._running is not None:
                self._running.is_cancelled = True
            waiting, self._waiting = self._waiting, deque()
            self._changed.notify()
        for job in waiting:
            job.sink.cancelled()
        self._thread.join()

    def _work(self) -> None:
        while (job := self._next_job()) is not None:
            try:
                self._generate(job)
            except _Stopped:
                job.sink.cancelled()
            except Exception as error:
                logger.exception("generation failed")
                with contextlib.suppress(Exception):  # the sink may be what is broken
                    job.sink.fail(f"generation failed: {error}")

    def _next_job(self) -> Job | None:
        with self._changed:
            self._running = None
            while not self._waiting and not self._is_closing:
                self._changed.wait()
            if self._is_closing:
                return None
            self._running = self._waiting.popleft()
            return self._running

    def _generate(self, job: Job) -> None:
        wanted = job.input
        sampler = Sampler(temperature=wanted.temperature, top_p=wanted.top_p, seed=wanted.seed)
        logits, length = self._prefill(job), len(wanted.prompt_ids)
        for generated in range(1, wanted.max_tokens + 1):
            token = sampler.next_token(logits)
            finish = self._finish(token, generated, wanted.max_tokens)
            job.sink.tokens([token], finish)
            if finish is not None:
                return
            logits = self._step(job, [token], length)
            length += 1

    def _prefill(self, job: Job) -> Logits:
        """In chunks, so that a cancel is seen between them. Logits after the whole prompt."""
        ids, size = job.input.prompt_ids, self._prefill_chunk_tokens
        last = (len(ids) - 1) // size * size
        for start in range(0, last, size):
            self._step(job, ids[start : start + size], start)
        return self._step(job, ids[last:], last)

    def _step(self, job: Job, ids: list[int], past_tokens: int) -> Logits:
        if job.is_cancelled or job.sink.is_abandoned():
            raise _Stopped
        return self._decoder.forward(ids, past_tokens)

    def _finish(self, token: int, generated: int, max_tokens: int) -> FinishReason | None:
        if token in self._end_ids:
            return "stop"
        return "length" if generated == max_tokens else None
