"""Samples the next tokens, writes them to the jobs' sinks, and ends sequences."""

from __future__ import annotations

import contextlib
import logging
import os

from guides.mask import GuideMask
from guides.state import slow_refusal
from onnx_cpu.kv_rows import Logits
from onnx_cpu.row_allocator import RowAllocator
from onnx_cpu.sequence import Sequence
from port import GUIDE_TOO_SLOW, INVALID_PARAMETER, Token
from recent_ids import RecentIds
from sampling.sampler import SamplingFailed, sample

GUIDE_PARAM = "guided_decoding_guide"

logger = logging.getLogger(__name__)


class SequenceOutput:
    """`cancel`, `refuse` and `fail` end a sequence, `sample` and `echo` after its last token."""

    def __init__(self, allocator: RowAllocator, slow_guides: RecentIds, vocab_size: int) -> None:
        self._allocator = allocator
        self._slow_guides = slow_guides
        self._guide_mask = GuideMask(vocab_size, threads=os.cpu_count() or 1)

    def prepare_masks(self, sequences: list[Sequence]) -> None:
        """Starts to fill the guide masks of their next tokens."""
        self._guide_mask.begin([sequence.guide for sequence in sequences])

    def sample(self, sequences: list[Sequence], logits: Logits) -> None:
        """Samples a token for each sequence whose guide is ready. logits: [sequences, vocab].

        A sequence whose guide is late feeds its last token again in the next step.
        """
        late = self._late(sequences)
        rows = [row for row, one in enumerate(sequences) if not (one.is_gone or one in late)]
        if len(rows) < len(sequences):
            sequences, logits = [sequences[row] for row in rows], logits[rows]
        mask = self._guide_mask.of([sequence.guide for sequence in sequences])
        drawn = sample(logits, [sequence.sampler for sequence in sequences], mask)
        for sequence, token in zip(sequences, drawn, strict=True):
            try:
                self._write(sequence, token)
            except Exception as error:
                self.fail(sequence, error)
        self.prepare_masks([sequence for sequence in sequences if not sequence.is_gone])
        for sequence in late:
            sequence.computed -= 1

    def echo(self, sequence: Sequence) -> bool:
        """Writes the prompt's tokens to the sink, if wanted; returns whether that is all."""
        echo, sequence.echo = sequence.echo, None
        if echo is None:
            return False
        is_all = sequence.job.input.max_tokens == 0
        sequence.job.sink.echo(echo.tokens(), "length" if is_all else None)
        if is_all:
            self._allocator.end(sequence)
        return is_all

    def end_complete(self, sequence: Sequence) -> bool:
        """Ends a sequence whose answer was complete before; returns whether it was."""
        finish = sequence.finish_before
        if finish is None:
            return False
        self._allocator.end(sequence)
        sequence.job.sink.started(0)
        sequence.job.sink.finished(finish)
        return True

    def cancel(self, sequence: Sequence) -> None:
        self._allocator.end(sequence)
        sequence.job.sink.cancelled()

    def refuse(
        self, sequence: Sequence, param: str, message: str, *, code: str = INVALID_PARAMETER
    ) -> None:
        self._allocator.end(sequence)
        sequence.job.sink.refuse(param, message, code=code)

    def refuse_slow_guide(self, sequence: Sequence) -> None:
        guide = sequence.job.input.guide
        if guide is None:
            raise ValueError("the sequence has no guide")
        self._slow_guides.add(hash(guide))
        self.refuse(sequence, GUIDE_PARAM, slow_refusal(guide), code=GUIDE_TOO_SLOW)

    def fail(self, sequence: Sequence, error: Exception) -> None:
        logger.error("generation failed", exc_info=error)
        self._allocator.end(sequence)
        with contextlib.suppress(Exception):  # the error may come from the sink itself
            sequence.job.sink.fail(f"generation failed: {error}")

    def close(self) -> None:
        self._guide_mask.close()

    def _late(self, sequences: list[Sequence]) -> list[Sequence]:
        """Those whose guides are not ready. Ends those whose guides are broken or too slow."""
        guides = [sequence.guide for sequence in sequences]
        if not any(guides):
            return []
        late = self._guide_mask.late_rows(guides)
        for sequence, state in zip(sequences, guides, strict=True):
            if state is not None and state.error is not None:
                self.fail(sequence, state.error)
            elif state is not None and self._guide_mask.is_too_slow(state):
                self.refuse_slow_guide(sequence)
        return [one for row, one in enumerate(sequences) if row in late and not one.is_gone]

    def _write(self, sequence: Sequence, token: Token | SamplingFailed) -> None:
        if isinstance(token, SamplingFailed):
            raise token
        finish = sequence.append(token.id)
        sequence.job.sink.token(token, finish)
        if finish is not None:
            self._allocator.end(sequence)
