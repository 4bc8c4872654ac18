"""In-flight batching: sequences join and leave the running batch at every step.

One step: who is over leaves, who waits is given a row, prompts are prefilled within the step's
budget, and every decoding row gets one token. Called by the runtime's thread only.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
from compiling import Compiling
from emission import Emission
from guide_compiler import CompiledGuide
from kv_rows import KvRows
from port import GUIDE_TOO_SLOW, BadParameter, Guide, Job
from prefill_budget import PrefillBudget
from roster import Roster
from sampler_state import SamplerState
from sequence import Sequence
from slow_guides import PARAM, SlowGuides, message
from stats import Stats

WAITING_LOOK_S = 0.05
WAITING_LOOKS = 500  # a tenth of a millisecond
COUNT_EVERY_S = 0.05
Ids = npt.NDArray[np.int64]
Logits = npt.NDArray[np.float32]


class Decoder(Protocol):
    """What runs the model; see OnnxDecoder."""

    @property
    def kv(self) -> KvRows: ...

    @property
    def vocab_size(self) -> int: ...

    @property
    def most_tokens(self) -> int:
        """Of one prefill."""

    def prefill(self, row: int, ids: list[int], past_tokens: int) -> Logits: ...

    def decode(self, ids: Ids, past_tokens: Ids) -> Logits: ...


class Guides(Protocol):
    """Compiles guides beside the decode loop; see GuideCompiler."""

    def compile(self, guide: Guide) -> Future[CompiledGuide]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """`rows`: sequences at work. `kv_bytes`: their keys and values and the prefix cache's.

    `stall_s`: for how long a prefill may hold up running streams; see PrefillBudget.
    """

    rows: int
    step_tokens: int
    kv_bytes: int
    stall_s: float | None = None


class Scheduler:
    """`ended` is told of each job that is over, whatever ended it."""

    def __init__(
        self,
        decoder: Decoder,
        guides: Guides,
        limits: Limits,
        *,
        end_ids: frozenset[int],
        ended: Callable[[Job], None],
    ) -> None:
        self._decoder = decoder
        self._guides = guides
        self._end_ids = end_ids
        self._ended = ended
        self._arrivals = 0
        self._compiling = Compiling()
        self._look_at_waiting_at = self._count_at = 0.0
        self.stats = Stats()
        kv_tokens = limits.kv_bytes // decoder.kv.shape.token_bytes
        self._roster = Roster(
            decoder.kv, self.stats, rows=limits.rows, kv_tokens=kv_tokens, ended=ended
        )
        self._slow_guides = SlowGuides()
        self._emission = Emission(self._roster, self._slow_guides, decoder.vocab_size)
        self._batch = self._roster.batch
        self._budget = PrefillBudget(
            step_tokens=min(limits.step_tokens, decoder.most_tokens), stall_s=limits.stall_s
        )

    @property
    def has_work(self) -> bool:
        return not self._roster.is_empty

    def add(self, job: Job) -> None:
        """A new job; its guide starts to compile at once."""
        self._arrivals += 1
        wanted = job.input
        if wanted.guide is not None and wanted.guide in self._slow_guides:
            self._ended(job)
            job.sink.refuse(PARAM, message(wanted.guide), code=GUIDE_TOO_SLOW)
            return
        try:
            sampler = SamplerState(
                wanted.sampling, wanted.prompt_ids, self._end_ids, self._decoder.vocab_size
            )
        except BadParameter as error:
            self._ended(job)
            job.sink.refuse(error.param, str(error))
            return
        guide = None if wanted.guide is None else self._guides.compile(wanted.guide)
        sequence = Sequence(job, self._arrivals, sampler, guide)
        self._roster.waiting.add(sequence)
        if guide is not None:
            self._compiling.add(sequence, guide)

    def step(self) -> bool:
        """One step of everything; False when all there is waits for guides to compile."""
        self._leave()
        self._take_guides()
        self._roster.admit()
        is_working = bool(self._batch.running)
        self._prefill()
        self._decode()
        self._count_present(time.monotonic())
        return is_working

    def end_all(self) -> None:
        """Every job ends as cancelled."""
        for sequence in list(self._roster):
            self._emission.cancel(sequence)
        self._emission.close()

    def fail_all(self, error: Exception) -> None:
        """Every job at work ends with an error."""
        for sequence in self._batch.running:
            self._emission.fail(sequence, error)

    def _leave(self) -> None:
        """At every step from the rows; 20 times a second some of those who wait are looked at."""
        now = time.monotonic()
        looked_at = self._batch.running
        if now >= self._look_at_waiting_at:
            self._look_at_waiting_at = now + WAITING_LOOK_S
            looked_at += self._roster.waiting.some(WAITING_LOOKS)
        for sequence in looked_at:
            if sequence.is_over():
                self._emission.cancel(sequence)

    def _take_guides(self) -> None:
        """Guides that are compiled by now; one that cannot be ends its job."""
        for sequence, error in self._compiling.take():
            if error is None:
                self._emission.prepare([sequence])
                self._roster.waiting.guide_arrived(sequence)
            else:
                self._emission.refuse(sequence, PARAM, str(error))

    def _prefill(self) -> None:
        left = self._budget.tokens(is_decoding=bool(self._batch.decoding))
        while left > 0 and self._batch.prefilling:
            sequence = self._next_prefill()
            ids = sequence.tokens[sequence.computed : sequence.computed + left]
            left -= len(ids)
            try:
                self._prefill_chunk(sequence, ids)
            except Exception as error:
                self._emission.fail(sequence, error)

    def _next_prefill(self) -> Sequence:
        """The oldest and the shortest take turns, so that neither waits for all others."""
        if self.stats.prefill_steps % 2:
            return min(self._batch.prefilling, key=lambda waiting: waiting.missing)
        return min(self._batch.prefilling, key=lambda waiting: waiting.order)

    def _prefill_chunk(self, sequence: Sequence, ids: list[int]) -> None:
        """After the prompt's last token the first new one is sampled."""
        if sequence.row is None:
            raise ValueError("the sequence has no row")
        began = time.perf_counter()
        logits = self._decoder.prefill(sequence.row, ids, sequence.computed)
        if sequence.echo is not None:
            sequence.echo.score(logits, sequence.computed)
        seconds = time.perf_counter() - began
        self._budget.prefilled(len(ids), seconds)
        self.stats.prefilled(len(ids), seconds)
        sequence.computed += len(ids)
        if not sequence.missing and not self._emission.echo(sequence):
            self._batch.promote(sequence)
            self._sample([sequence], logits[-1:])
        self._roster.keep(sequence)

    def _decode(self) -> None:
        self._roster.make_room_for_growth()
        rows = list(self._batch.decoding)
        if not rows:
            return
        ids = np.array([sequence.tokens[-1] for sequence in rows], np.int64)
        past = np.array([sequence.computed for sequence in rows], np.int64)
        began = time.perf_counter()
        try:
            logits = self._decoder.decode(ids, past)
            for sequence in rows:
                sequence.computed += 1
            self._sample(rows, logits)
        except Exception as error:
            for sequence in set(rows) & set(self._batch.decoding):
                self._emission.fail(sequence, error)
        seconds = time.perf_counter() - began
        self._budget.decoded(seconds)
        self.stats.decoded(len(rows), seconds)

    def _sample(self, sequences: list[Sequence], logits: Logits) -> None:
        """A sequence whose guide is late feeds its last token again at the next step."""
        for sequence in self._emission.sample(sequences, logits):
            sequence.computed -= 1

    def _count_present(self, now: float) -> None:
        """Twenty times a second, and when nothing is left to do."""
        if now < self._count_at and self._batch.running:
            return
        self._count_at = now + COUNT_EVERY_S
        self.stats.present(self._roster, self._decoder.kv.shape.token_bytes)
