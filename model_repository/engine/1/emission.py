"""From logits to the jobs' sinks: tokens are sampled and handed on, and who is over leaves."""

from __future__ import annotations

import contextlib
import logging
import os

import numpy as np
import numpy.typing as npt
from guide_state import GuideMask
from port import Token
from roster import Roster
from sampling import SamplingFailed, sample
from sequence import Sequence

logger = logging.getLogger(__name__)


class Emission:
    """Each of its verbs but `sample` and `echo` ends the sequence."""

    def __init__(self, roster: Roster, vocab_size: int) -> None:
        self._roster = roster
        self._guide_mask = GuideMask(vocab_size, threads=os.cpu_count() or 1)

    def sample(self, sequences: list[Sequence], logits: npt.NDArray[np.float32]) -> None:
        """A token for each. `logits`: [sequences, vocab]."""
        mask = self._guide_mask.fill([sequence.guide for sequence in sequences])
        drawn = sample(logits, [sequence.sampler for sequence in sequences], mask)
        for sequence, token in zip(sequences, drawn, strict=True):
            try:
                self._deliver(sequence, token)
            except Exception as error:
                self.fail(sequence, error)

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

    def refuse(self, sequence: Sequence, param: str, message: str) -> None:
        self._roster.end(sequence)
        sequence.job.sink.refuse(param, message)

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
