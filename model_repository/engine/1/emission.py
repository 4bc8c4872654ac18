"""From logits to the jobs' sinks: tokens are sampled and handed on, and who is over leaves."""

from __future__ import annotations

import contextlib
import logging
import os

import numpy as np
import numpy.typing as npt
from guide_mask import GuideMask
from port import GUIDE_TOO_SLOW, INVALID_PARAMETER, Token
from roster import Roster
from sampling import SamplingFailed, sample
from sequence import Sequence
from slow_guides import PARAM, SlowGuides, message

logger = logging.getLogger(__name__)


class Emission:
    """Each of its verbs but `prepare`, `sample` and `echo` ends the sequence."""

    def __init__(self, roster: Roster, slow_guides: SlowGuides, vocab_size: int) -> None:
        self._roster = roster
        self._slow_guides = slow_guides
        self._guide_mask = GuideMask(vocab_size, threads=os.cpu_count() or 1)

    def prepare(self, sequences: list[Sequence]) -> None:
        """Starts to fill the masks of their next tokens."""
        self._guide_mask.begin([sequence.guide for sequence in sequences])

    def sample(self, sequences: list[Sequence], logits: npt.NDArray[np.float32]) -> list[Sequence]:
        """A token for each, but for those whose guides are late: these are returned.

        logits: [sequences, vocab].
        """
        late = self._late(sequences)
        rows = [row for row, one in enumerate(sequences) if not (one.is_gone or one in late)]
        if len(rows) < len(sequences):
            sequences, logits = [sequences[row] for row in rows], logits[rows]
        mask = self._guide_mask.of([sequence.guide for sequence in sequences])
        drawn = sample(logits, [sequence.sampler for sequence in sequences], mask)
        for sequence, token in zip(sequences, drawn, strict=True):
            try:
                self._deliver(sequence, token)
            except Exception as error:
                self.fail(sequence, error)
        self.prepare([sequence for sequence in sequences if not sequence.is_gone])
        return late

    def _late(self, sequences: list[Sequence]) -> list[Sequence]:
        """Those whose guides are not ready. Ends those whose guides are broken or too slow."""
        guides = [sequence.guide for sequence in sequences]
        if not any(guides):
            return []
        late = self._guide_mask.late(guides)
        for sequence, state in zip(sequences, guides, strict=True):
            if state is not None and state.error is not None:
                self.fail(sequence, state.error)
            elif state is not None and self._guide_mask.is_too_slow(state):
                self._end_slow_guide(sequence)
        return [one for row, one in enumerate(sequences) if row in late and not one.is_gone]

    def _end_slow_guide(self, sequence: Sequence) -> None:
        guide = sequence.job.input.guide
        if guide is None:
            raise ValueError("the sequence has no guide")
        self._slow_guides.add(guide)
        self.refuse(sequence, PARAM, message(guide), code=GUIDE_TOO_SLOW)

    def echo(self, sequence: Sequence) -> bool:
        """Hands on the prompt's own tokens, where they are wanted; whether that is all."""
        echo, sequence.echo = sequence.echo, None
        if echo is None:
            return False
        is_all = sequence.job.input.max_tokens == 0
        sequence.job.sink.echo(echo.tokens(), "length" if is_all else None)
        if is_all:
            self._roster.end(sequence)
        return is_all

    def cancel(self, sequence: Sequence) -> None:
        self._roster.end(sequence)
        sequence.job.sink.cancelled()

    def refuse(
        self, sequence: Sequence, param: str, message: str, *, code: str = INVALID_PARAMETER
    ) -> None:
        self._roster.end(sequence)
        sequence.job.sink.refuse(param, message, code=code)

    def close(self) -> None:
        self._guide_mask.close()

    def fail(self, sequence: Sequence, error: Exception) -> None:
        logger.error("generation failed", exc_info=error)
        self._roster.end(sequence)
        with contextlib.suppress(Exception):  # the sink may be what is broken
            sequence.job.sink.fail(f"generation failed: {error}")

    def _deliver(self, sequence: Sequence, token: Token | SamplingFailed) -> None:
        if isinstance(token, SamplingFailed):
            raise token
        finish = sequence.append(token.id)
        sequence.job.sink.token(token, finish)
        if finish is not None:
            self._roster.end(sequence)
