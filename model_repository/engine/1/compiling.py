"""Sequences that wait for their guides to compile."""

from __future__ import annotations

from guide_state import GuideState
from sequence import Sequence


class Compiling:
    """Those that leave meanwhile are forgotten."""

    def __init__(self) -> None:
        self._sequences: list[Sequence] = []

    def add(self, sequence: Sequence) -> None:
        self._sequences.append(sequence)

    def take(self) -> list[tuple[Sequence, Exception]]:
        """Gives each its guide where it is ready; those whose guide cannot be compiled, and why."""
        failed: list[tuple[Sequence, Exception]] = []
        for sequence in self._sequences:
            coming = sequence.guide_to_come
            if coming is None or sequence.is_gone or not coming.done():
                continue
            try:
                sequence.guide, sequence.guide_to_come = GuideState(coming.result()), None
            except Exception as error:
                failed.append((sequence, error))
        over = {sequence for sequence, _ in failed}
        self._sequences = [
            one
            for one in self._sequences
            if one.guide_to_come and not one.is_gone and one not in over
        ]
        return failed
