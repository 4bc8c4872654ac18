"""The sequences without a row, ordered by priority, then by arrival.

There are three groups, so that the cost of a step does not grow with the queue: sequences that may
get a row (a heap), sequences whose guide is being compiled, and sequences parked behind a prefill
that computes the block that they need next.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from itertools import islice

from onnx_cpu.sequence import Sequence


class WaitingQueue:
    """Iterates over all of its sequences, in no order. preempted: how many of them had a row."""

    def __init__(self) -> None:
        self.preempted = 0
        self._all: dict[Sequence, None] = {}
        self._ready: list[tuple[tuple[int, int], Sequence]] = []  # a heap; has removed ones, too
        # The prefill that they are parked behind -> a heap by the tokens that they wait for.
        self._parked: dict[Sequence, list[tuple[int, int, Sequence]]] = {}

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[Sequence]:
        return iter(tuple(self._all))

    def add(self, sequence: Sequence) -> None:
        """A sequence that needs a guide becomes ready with `guide_arrived`."""
        self._all[sequence] = None
        self.preempted += sequence.has_started
        if not sequence.needs_guide:
            self._make_ready(sequence)

    def guide_arrived(self, sequence: Sequence) -> None:
        if sequence in self._all:
            self._make_ready(sequence)

    def remove(self, sequence: Sequence) -> None:
        del self._all[sequence]
        self.preempted -= sequence.has_started

    def first(self) -> Sequence | None:
        """The next sequence that may get a row."""
        while self._ready and self._ready[0][1] not in self._all:
            heapq.heappop(self._ready)
        return self._ready[0][1] if self._ready else None

    def take_first(self) -> Sequence:
        """Removes and returns `first`."""
        sequence = heapq.heappop(self._ready)[1]
        self.remove(sequence)
        return sequence

    def park_first(self, behind: Sequence, tokens: int) -> None:
        """Parks `first` until `behind` has prefilled its first `tokens`, or stops prefilling."""
        sequence = heapq.heappop(self._ready)[1]
        parked = self._parked.setdefault(behind, [])
        heapq.heappush(parked, (tokens, sequence.arrival, sequence))

    def release(self, prefilling: list[Sequence]) -> None:
        """Makes parked sequences ready whose block is computed, or will not be."""
        for behind, parked in list(self._parked.items()):
            is_over = behind not in prefilling
            while parked and (is_over or parked[0][0] <= behind.computed):
                sequence = heapq.heappop(parked)[2]
                if sequence in self._all:
                    self._make_ready(sequence)
            if not parked:
                del self._parked[behind]

    def rotate(self, most: int) -> list[Sequence]:
        """Returns up to `most` sequences; each call continues after the last one."""
        found = list(islice(self._all, most))
        for sequence in found:
            self._all[sequence] = self._all.pop(sequence)
        return found

    def _make_ready(self, sequence: Sequence) -> None:
        heapq.heappush(self._ready, (sequence.order, sequence))
