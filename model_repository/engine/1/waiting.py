"""Sequences without a row: the highest priority first, then the one that came first."""

from __future__ import annotations

import bisect
from collections.abc import Iterator

from sequence import Sequence


class Waiting:
    """Iterating gives them in order."""

    def __init__(self) -> None:
        self._sequences: list[Sequence] = []

    def __len__(self) -> int:
        return len(self._sequences)

    def __iter__(self) -> Iterator[Sequence]:
        return iter(tuple(self._sequences))

    def add(self, sequence: Sequence) -> None:
        bisect.insort(self._sequences, sequence, key=lambda waiting: waiting.order)

    def remove(self, sequence: Sequence) -> None:
        self._sequences.remove(sequence)
