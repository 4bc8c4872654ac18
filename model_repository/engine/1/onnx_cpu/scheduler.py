"""In-flight batching: sequences join and leave the running batch at every step.

One step ends cancelled sequences, gives rows to waiting ones, feeds prompts within the step's
budget, and decodes one token for every decoding row. Only the runtime's thread calls it.
"""

from __future__ import annotations

import contextlib
import ctypes
import queue
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import numpy as np

from block_log import BlockLog
from guides.compiler import CompiledGuide
from guides.state import GuideState, GuideTooSlow, slow_refusal
from onnx_cpu.kv_rows import Decoder, KvOverflow, Logits
from onnx_cpu.prefill import Prefill, PrefillBudget
from onnx_cpu.prefix_cache import BLOCK, FreeMemory
from onnx_cpu.row_allocator import RowAllocator
from onnx_cpu.sequence import Sequence
from onnx_cpu.sequence_output import GUIDE_PARAM, SequenceOutput
from port import GUIDE_TOO_SLOW, INVALID_PARAMETER, BadParameter, Guide, Job
from recent_ids import RecentIds
from sampling.state import SamplerState
from stats import Stats

# Not the threads that compile: a guide that is slow to follow must not delay those.
REPLAY_THREADS = 2


class Compiler(Protocol):
    """Compiles guides next to the decode loop; see GuideCompiler."""

    def compile(self, guide: Guide) -> Future[CompiledGuide]: ...


class PendingGuides:
    """Other threads queue their results, so that a step need not look at every sequence."""

    def __init__(self, compiler: Compiler) -> None:
        self._compiler = compiler
        self._replays = ThreadPoolExecutor(REPLAY_THREADS, thread_name_prefix="guide-replay")
        self._done: queue.SimpleQueue[tuple[Sequence, GuideState | Exception]] = queue.SimpleQueue()

    def add(self, sequence: Sequence) -> None:
        """Starts to compile the sequence's guide, if it has one."""
        if (guide := sequence.job.input.guide) is not None:
            self._compiler.compile(guide).add_done_callback(partial(self._compiled, sequence))

    def take(self) -> list[tuple[Sequence, Exception | None]]:
        """The sequences whose guides became ready or failed since the last call, with the error.

        Sets the guide of a sequence without an error. Skips sequences that have ended meanwhile.
        """
        found: list[tuple[Sequence, Exception | None]] = []
        while not self._done.empty():
            sequence, outcome = self._done.get()
            if sequence.is_gone:
                continue
            if isinstance(outcome, Exception):
                found.append((sequence, outcome))
            else:
                sequence.guide = outcome
                found.append((sequence, None))
        return found

    def close(self) -> None:
        self._replays.shutdown(wait=False, cancel_futures=True)

    def _compiled(self, sequence: Sequence, compiled: Future[CompiledGuide]) -> None:
        """In the compiling thread, or in the scheduler's if the guide was compiled before."""
        try:
            state = GuideState(compiled.result())
        except Exception as error:
            self._done.put((sequence, error))
            return
        if not sequence.job.input.generated_ids:
            self._done.put((sequence, state))
            return
        with contextlib.suppress(RuntimeError):  # closed: every sequence has ended
            self._replays.submit(self._replay, sequence, state)

    def _replay(self, sequence: Sequence, state: GuideState) -> None:
        try:
            state.replay(sequence.job.input.generated_ids, lambda: sequence.is_gone)
        except Exception as error:
            self._done.put((sequence, error))
        else:
            self._done.put((sequence, state))


CHECK_WAITING_EVERY_S = 0.05
CHECKS_AT_ONCE = 500  # take a tenth of a millisecond
REPORT_EVERY_S = 0.05
# Guides that took too much time are refused at once when they come again.
SLOW_GUIDES_KEEP_S = 600.0
SLOW_GUIDES_AT_MOST = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerConfig:
    """rows: sequences that run at once. step_tokens: prompt tokens that one step may feed.

    kv_bytes: memory for the keys and values of the rows and of the prefix cache. stall_s: how long
    a prefill may delay running streams, see PrefillBudget. most_replayed: see Sequence.start.
    """

    rows: int
    step_tokens: int
    kv_bytes: int
    stall_s: float | None = None
    most_replayed: int = 0


class Scheduler:
    """Calls `ended` with each job that is over, however it ended. blocks: of the prefix cache."""

    def __init__(
        self,
        decoder: Decoder,
        compiler: Compiler,
        config: SchedulerConfig,
        *,
        end_ids: frozenset[int],
        ended: Callable[[Job], None],
        memory: FreeMemory | None = None,
        blocks: BlockLog | None = None,
    ) -> None:
        self._decoder = decoder
        self._end_ids = end_ids
        self._ended = ended
        self._arrivals = 0
        self._libc = ctypes.CDLL(None)
        self._has_worked = False  # since the last rest
        self._check_waiting_at = self._report_at = 0.0
        kv_tokens = config.kv_bytes // decoder.kv.shape.token_bytes
        self.stats = Stats(
            most_rows=config.rows,
            has_kv_blocks=True,
            kv_block_tokens=BLOCK,
            kv_blocks=kv_tokens // BLOCK,
        )
        self._allocator = RowAllocator(
            decoder.kv,
            self.stats,
            rows=config.rows,
            kv_tokens=kv_tokens,
            most_replayed=config.most_replayed,
            memory=memory or FreeMemory(),
            blocks=blocks or BlockLog("", BLOCK),
            ended=ended,
        )
        self._batch = self._allocator.batch
        self._slow_guides = RecentIds(keep_s=SLOW_GUIDES_KEEP_S, most=SLOW_GUIDES_AT_MOST)
        self._pending_guides = PendingGuides(compiler)
        self._output = SequenceOutput(self._allocator, self._slow_guides, decoder.vocab_size)
        self._budget = PrefillBudget(
            step_tokens=min(config.step_tokens, decoder.most_tokens), stall_s=config.stall_s
        )
        self._prefill = Prefill(decoder, self._allocator, self._output, self._budget, self.stats)

    @property
    def has_work(self) -> bool:
        return not self._allocator.is_empty

    def add(self, job: Job) -> None:
        """Adds a new job, and starts to compile its guide."""
        self._arrivals += 1
        wanted = job.input
        if wanted.guide is not None and self._slow_guides.has(hash(wanted.guide)):
            self._refuse(job, GUIDE_PARAM, slow_refusal(wanted.guide), code=GUIDE_TOO_SLOW)
            return
        try:
            sampler = SamplerState(
                wanted.sampling,
                wanted.prompt_ids,
                self._end_ids,
                self._decoder.vocab_size,
                wanted.generated_ids,
            )
        except BadParameter as error:
            self._refuse(job, error.param, str(error))
            return
        sequence = Sequence(job, self._arrivals, sampler)
        self._pending_guides.add(sequence)
        self._allocator.waiting.add(sequence)
        if not sequence.needs_guide:
            self._output.end_complete(sequence)

    def step(self) -> bool:
        """One step of everything; False if all sequences wait for their guides to compile."""
        self._has_worked = True
        self._end_cancelled()
        self._take_guides()
        self._allocator.admit()
        is_working = bool(self._batch.running)
        self._prefill.step()
        self._decode()
        self._report(time.monotonic())
        return is_working

    def rest(self) -> None:
        """Called about once a second while there is nothing to do."""
        self._allocator.limit_cache()
        self._allocator.report()
        if self._has_worked:
            self._has_worked = False
            self._libc.malloc_trim(0)  # returns what malloc holds free: takes some milliseconds

    def end_all(self) -> None:
        """Ends every job as cancelled."""
        for sequence in list(self._allocator):
            self._output.cancel(sequence)
        self._output.close()
        self._pending_guides.close()

    def fail_all(self, error: Exception) -> None:
        """Ends every running job with an error."""
        for sequence in self._batch.running:
            self._output.fail(sequence, error)

    def _refuse(self, job: Job, param: str, message: str, *, code: str = INVALID_PARAMETER) -> None:
        """Refuses a job that has no sequence yet."""
        self._ended(job)
        job.sink.refuse(param, message, code=code)

    def _end_cancelled(self) -> None:
        """Checks the running sequences at every step, some waiting ones 20 times a second."""
        now = time.monotonic()
        checked = self._batch.running
        if now >= self._check_waiting_at:
            self._check_waiting_at = now + CHECK_WAITING_EVERY_S
            checked += self._allocator.waiting.rotate(CHECKS_AT_ONCE)
        for sequence in checked:
            if sequence.must_end():
                self._output.cancel(sequence)

    def _take_guides(self) -> None:
        """Readies sequences whose guides are compiled; ends those whose guides are wrong."""
        for sequence, error in self._pending_guides.take():
            if isinstance(error, GuideTooSlow):
                self._output.refuse_slow_guide(sequence)
            elif isinstance(error, BadParameter):
                self._output.refuse(sequence, error.param, str(error))
            elif error is not None:
                self._output.refuse(sequence, GUIDE_PARAM, str(error))
            elif not self._output.end_complete(sequence):
                self._output.prepare_masks([sequence])
                self._allocator.waiting.guide_arrived(sequence)

    def _decode(self) -> None:
        self._allocator.make_room_for_growth()
        rows = list(self._batch.decoding)
        if not rows:
            return
        ids = np.array([sequence.tokens[sequence.computed] for sequence in rows], np.int64)
        past = np.array([sequence.computed for sequence in rows], np.int64)
        began = time.perf_counter()
        try:
            logits = self._decoder.decode(ids, past)
            for sequence in rows:
                sequence.computed += 1
            self._sample(rows, logits)
        except KvOverflow as error:  # the others are fed the same tokens again
            for row in error.rows:
                self._output.fail(rows[row], error)
        except Exception as error:
            for sequence in set(rows) & set(self._batch.decoding):
                self._output.fail(sequence, error)
        seconds = time.perf_counter() - began
        self._budget.decoded(seconds)
        self.stats.decoded(len(rows), seconds)

    def _sample(self, rows: list[Sequence], logits: Logits) -> None:
        """Samples the next token of every row that has computed all of its tokens."""
        if any(sequence.missing for sequence in rows):
            complete = [row for row, sequence in enumerate(rows) if not sequence.missing]
            rows, logits = [rows[row] for row in complete], logits[complete]
        self._output.sample(rows, logits)

    def _report(self, now: float) -> None:
        """Updates the stats 20 times a second, and when there is nothing left to do."""
        if now >= self._report_at or not self._batch.running:
            self._report_at = now + REPORT_EVERY_S
            self._allocator.report()
