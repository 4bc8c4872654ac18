"""Feeds prompts to the model, in chunks, so that running streams do not wait long."""

from __future__ import annotations

import time

from onnx_cpu.kv_rows import Decoder, Logits
from onnx_cpu.row_allocator import RowAllocator
from onnx_cpu.sequence import Sequence
from onnx_cpu.sequence_output import SequenceOutput
from stats import Stats

# A run reads all weights, as a decode step does, so small chunks cost almost twice as much a token.
LEAST_TOKENS = 16
# Logits of each token of a scored chunk are held at once: with 50,000 words 0.6 MB a token.
MOST_SCORED_TOKENS = 128
LEAST_STALL_S = 0.05
DECODE_STEPS = 4.0
WEIGHT = 0.2  # of a new measurement in the running means


class PrefillBudget:
    """How many prompt tokens a step may feed.

    stall_s: how long prefill may delay decoding rows in one step. None: four decode steps, and at
    least 50 ms. Both speeds are measured while the engine runs.
    """

    def __init__(self, *, step_tokens: int, stall_s: float | None) -> None:
        self.step_tokens = step_tokens
        self._stall_s = stall_s
        self._token_s: float | None = None
        self._decode_s = 0.0

    def tokens(self, *, is_decoding: bool) -> int:
        if not is_decoding or self._token_s is None:
            return self.step_tokens
        stall_s = self._stall_s or max(LEAST_STALL_S, DECODE_STEPS * self._decode_s)
        return min(self.step_tokens, max(LEAST_TOKENS, int(stall_s / self._token_s)))

    def prefilled(self, tokens: int, seconds: float) -> None:
        token_s = seconds / tokens
        before = token_s if self._token_s is None else self._token_s
        self._token_s = before + WEIGHT * (token_s - before)

    def decoded(self, seconds: float) -> None:
        before = self._decode_s or seconds
        self._decode_s = before + WEIGHT * (seconds - before)


class Prefill:
    """The prefill part of the scheduler's step."""

    def __init__(
        self,
        decoder: Decoder,
        allocator: RowAllocator,
        output: SequenceOutput,
        budget: PrefillBudget,
        stats: Stats,
    ) -> None:
        self._decoder = decoder
        self._allocator = allocator
        self._batch = allocator.batch
        self._output = output
        self._budget = budget
        self._stats = stats

    def step(self) -> None:
        """Feeds prompt tokens until what is left of the budget is not worth a run."""
        left = self._budget.tokens(is_decoding=bool(self._batch.decoding))
        while self._batch.prefilling:
            sequence = self._next()
            end = self._end_of_chunk(sequence, left)
            left -= end - sequence.computed
            try:
                if sequence.computed < end:
                    self._feed(sequence, end)
                else:  # the cache has more than the prompt
                    self._batch.promote(sequence)
            except Exception as error:
                self._output.fail(sequence, error)
            if left < LEAST_TOKENS:
                break

    def _end_of_chunk(self, sequence: Sequence, left: int) -> int:
        """A short rest of the prompt is fed along, beyond the budget."""
        missing = sequence.prefill_end - sequence.computed
        is_rest_short = missing - left < max(LEAST_TOKENS, left // 2)
        most = self._budget.step_tokens if is_rest_short else left
        if _is_scored(sequence):
            most = min(most, MOST_SCORED_TOKENS)
        return sequence.computed + min(missing, most)

    def _next(self) -> Sequence:
        """The oldest and the shortest take turns, so that neither waits for all others."""
        if self._stats.prefill_steps % 2:
            return min(self._batch.prefilling, key=lambda sequence: sequence.missing)
        return min(self._batch.prefilling, key=lambda sequence: sequence.order)

    def _feed(self, sequence: Sequence, end: int) -> None:
        """Feeds one chunk, up to the token `end`.

        A chunk has two tokens at least, if necessary one that was fed before: a single token would
        take the decode's kernels, whose results differ in their last bits.
        """
        if sequence.row is None:
            raise ValueError("the sequence has no row")
        start = min(sequence.computed, max(0, end - 2))
        ids = sequence.tokens[start:end]
        began = time.perf_counter()
        echo = sequence.echo if _is_scored(sequence) else None
        logits_from = len(ids) - 1 if echo is None else 0
        logits = self._decoder.prefill(sequence.row, ids, start, logits_from)
        if echo is not None:
            echo.score(logits, start)
        seconds = time.perf_counter() - began
        self._budget.prefilled(len(ids), seconds)
        self._stats.prefilled(end - sequence.computed, seconds)
        sequence.computed = end
        if end == sequence.prefill_end:
            self._end(sequence, logits[-1:])
        self._allocator.save_prefix(sequence)

    def _end(self, sequence: Sequence, logits: Logits) -> None:
        """Samples the next token, unless decode still has to compute the last ones."""
        if sequence.missing:
            self._batch.promote(sequence)
        elif not self._output.echo(sequence):
            self._batch.promote(sequence)
            self._output.sample([sequence], logits)


def _is_scored(sequence: Sequence) -> bool:
    """Whether the caller wants the log-probabilities of the prompt's next tokens."""
    return sequence.echo is not None and sequence.echo.unscored_from is not None
