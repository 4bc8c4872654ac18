"""The order in which the tenants of one class are served: a heap. Used by priority_class."""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Iterable

from triton_openai.proxy.scheduling.stream import Stream

SPARE_ENTRIES = 64

Entry = tuple[float, int, "Share"]


class Share:
    """One tenant's. counter: its service, divided by its weight.

    entry: its valid one in the order; None where it has nothing waiting. yielding: streams that
    run, and were told to stop.
    """

    __slots__ = ("counter", "entry", "is_remembered", "running", "waiting", "weight", "yielding")

    def __init__(self, counter: float, weight: float) -> None:
        self.counter = counter
        self.weight = weight
        self.waiting: OrderedDict[Stream, None] = OrderedDict()
        self.running = 0
        self.yielding = 0
        self.entry: Entry | None = None
        self.is_remembered = False

    @property
    def is_idle(self) -> bool:
        return not (self.running or self.waiting)

    @property
    def rows(self) -> int:
        """Those that it keeps."""
        return self.running - self.yielding

    @property
    def first(self) -> Stream:
        return next(iter(self.waiting))


class ServiceOrder:
    """Tenants with streams that wait; the one with the least counter is first.

    An entry is valid if its share has it; its key is never greater than the true one, so that the
    first entry with a true key is the least. `len` counts entries, valid or not.
    """

    def __init__(self) -> None:
        self._heap: list[Entry] = []
        self.tenants = 0

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, share: Share) -> None:
        """Also when the place of one that is in it already has moved forward."""
        self.tenants += share.entry is None
        share.entry = _entry(share)
        heapq.heappush(self._heap, share.entry)
        if len(self._heap) > 2 * self.tenants + SPARE_ENTRIES:
            self._heap = self.valid_entries()

    def remove(self, share: Share) -> None:
        share.entry = None
        self.tenants -= 1

    def first(self) -> Share | None:
        """The share whose turn it is."""
        heap = self._heap
        while heap:
            entry = heap[0]
            share = entry[2]
            if share.entry is not entry:
                heapq.heappop(heap)
            elif entry[0] == share.counter and entry[1] == share.first.number:
                return share
            else:
                share.entry = _entry(share)
                heapq.heapreplace(heap, share.entry)
        return None

    def valid_entries(self) -> list[Entry]:
        """A copy without the others. It is a heap."""
        if len(self._heap) == self.tenants:
            return self._heap.copy()
        valid = [entry for entry in self._heap if entry[2].entry is entry]
        heapq.heapify(valid)
        return valid

    def rebuild(self, shares: Iterable[Share]) -> None:
        """After their counters were changed. shares: all of them, those that wait and others."""
        self._heap = []
        for share in shares:
            if share.waiting:
                share.entry = _entry(share)
                self._heap.append(share.entry)
        heapq.heapify(self._heap)


def _entry(share: Share) -> Entry:
    return share.counter, share.first.number, share
