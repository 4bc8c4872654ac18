"""Sequences without a row: the highest priority first, then the one that came first.

Three groups, so that a step's cost does not grow with the queue: those that may be given a row (a
heap), those whose guide is being compiled, and those parked behind a prefill that computes the
block they need next.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from itertools import islice

from sequence import Sequence


class Waiting:
    """Iterating gives all of them, in no order."""

    def __init__(self) -> None:
        self._all: dict[Sequence, None] = {}
        self._ready: list[tuple[tuple[int, int], Sequence]] = []  # a heap; has removed ones, too
        self._parked: dict[Sequence, list[tuple[int, int, Sequence]]] = {}  # heaps, by the prefill

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[Sequence]:
        return iter(tuple(self._all))

    def add(self, sequence: Sequence) -> None:
        """One whose guide is still being compiled becomes ready by `guide_arrived`."""
        self._all[sequence] = None
        if sequence.guide_to_come is None:
            self._make_ready(sequence)

    def guide_arrived(self, sequence: Sequence) -> None:
        if sequence in self._all:
            self._make_ready(sequence)

    def remove(self, sequence: Sequence) -> None:
        del self._all[sequence]

    def first(self) -> Sequence | None:
        """The next one that may be given a row."""
        while self._ready and self._ready[0][1] not in self._all:
            heapq.heappop(self._ready)
        return self._ready[0][1] if self._ready else None

    def take_first(self) -> Sequence:
        """The same, which leaves the queue."""
        sequence = heapq.heappop(self._ready)[1]
        del self._all[sequence]
        return sequence

    def park_first(self, behind: Sequence, tokens: int) -> None:
        """`first` waits until `behind` has prefilled so many tokens, or no longer prefills."""
        sequence = heapq.heappop(self._ready)[1]
        parked = self._parked.setdefault(behind, [])
        heapq.heappush(parked, (tokens, sequence.arrival, sequence))

    def release(self, prefilling: list[Sequence]) -> None:
        """Parked sequences become ready once their block is computed, or will not be."""
        for behind, parked in list(self._parked.items()):
            is_over = behind not in prefilling
            while parked and (is_over or parked[0][0] <= behind.computed):
                sequence = heapq.heappop(parked)[2]
                if sequence in self._all:
                    self._make_ready(sequence)
            if not parked:
                del self._parked[behind]

    def some(self, most: int) -> list[Sequence]:
        """At most so many of all; each call continues after the last one."""
        found = list(islice(self._all, most))
        for sequence in found:
            self._all[sequence] = self._all.pop(sequence)
        return found

    def _make_ready(self, sequence: Sequence) -> None:
        heapq.heappush(self._ready, (sequence.order, sequence))
