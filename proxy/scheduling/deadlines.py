"""When the patience of streams that wait is over."""

from __future__ import annotations

import heapq
import math
from itertools import count

from proxy.scheduling.stream import State, Stream

SPARE_ENTRIES = 64


class Deadlines:
    """A heap; a stream that no longer waits stays in it until it is half of the heap."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Stream]] = []
        self._numbers = count()

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, stream: Stream, waiting: int) -> None:
        """waiting: streams of all queues."""
        if stream.deadline == math.inf:
            return
        heapq.heappush(self._heap, (stream.deadline, next(self._numbers), stream))
        if len(self._heap) > 2 * waiting + SPARE_ENTRIES:
            self._heap = [entry for entry in self._heap if entry[2].state is State.WAITING]
            heapq.heapify(self._heap)

    def next(self) -> float | None:
        """The earliest of a stream that waits; None where none does."""
        heap = self._heap
        while heap and heap[0][2].state is not State.WAITING:
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def pop(self) -> Stream:
        """The stream of `next`."""
        return heapq.heappop(self._heap)[2]
