"""The order in which the tenants of one class are served: a heap. Used by priority_class."""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Iterable

from proxy.scheduling.service_rate import ServiceRate
from proxy.scheduling.stream import Stream

SPARE_ENTRIES = 64
ROW = 1_024  # service that a row stands for while a stream holds it
SLICE = 256  # service by which a tenant is ahead of another before it gives up a row to it

Entry = tuple[float, int, "Share"]


class Share:
    """One tenant's share of a class."""

    __slots__ = (
        *("came_at", "counter", "entry", "holding", "is_remembered"),
        *("rate", "running", "waiting", "weight"),
    )

    def __init__(self, counter: float, weight: float) -> None:
        self.counter = counter  # its service, divided by its weight
        self.came_at = counter  # what it was when its first stream came after it had none
        self.weight = weight
        self.waiting: OrderedDict[Stream, None] = OrderedDict()
        self.running = 0
        self.holding: OrderedDict[Stream, None] = OrderedDict()  # they have rows, and keep them
        self.entry: Entry | None = None  # its valid one in the order; None while nothing waits
        self.is_remembered = False
        self.rate = ServiceRate(0.0)

    @property
    def is_idle(self) -> bool:
        return not (self.running or self.waiting)

    @property
    def first(self) -> Stream:
        return next(iter(self.waiting))

    @property
    def newest(self) -> Stream:
        """The newest stream that has a row."""
        return next(reversed(self.holding))

    @property
    def load(self) -> float:
        """The counter as it will be when each of its rows has given some service."""
        return self.counter + ROW * len(self.holding) / self.weight

    @property
    def load_without_a_row(self) -> float:
        return self.load - ROW / self.weight

    @property
    def has_just_come(self) -> bool:
        """It has not had a slice of service since it had no stream."""
        return self.is_idle or self.counter < self.came_at + SLICE / self.weight


class ServiceOrder:
    """Tenants with streams that wait, by their counters.

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
        """The share with the least counter."""
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

    def next(self) -> Share | None:
        """The share with the least load, whose turn it is.

        Only shares with rows are passed over: the first without any has the least load of the rest.
        """
        passed: list[Entry] = []
        while (share := self.first()) is not None:
            passed.append((share.load, share.first.number, share))
            if not share.holding:
                break
            heapq.heappop(self._heap)
        for _, _, each in passed:
            if each.holding and each.entry is not None:
                heapq.heappush(self._heap, each.entry)
        return min(passed)[2] if passed else None

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
