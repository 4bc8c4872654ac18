"""The classes of one queue, and the order in which their streams would be served."""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections.abc import Iterator

from proxy.domain.scheduling import TenantState, Ticket
from proxy.scheduling.priority_class import Entry, PriorityClass, Share
from proxy.scheduling.stream import Stream


class Classes:
    """waiting: streams of all classes. A class that nobody uses is forgotten."""

    def __init__(self) -> None:
        self._classes: dict[int, PriorityClass] = {}
        self._waiting: list[int] = []  # priorities with streams that wait, ascending
        self.waiting = 0

    def __getitem__(self, priority: int) -> PriorityClass:
        return self._classes[priority]

    def __len__(self) -> int:
        return len(self._classes)

    def enter(self, stream: Stream) -> None:
        one = self._of(stream)
        one.enter(stream)
        self.waiting += 1
        if one.waiting == 1:
            insort(self._waiting, stream.ticket.priority)

    def leave(self, stream: Stream, now: float) -> None:
        priority = stream.ticket.priority
        self._classes[priority].leave(stream, now)
        self._waits_less(priority)
        self._forget(priority)

    @property
    def next(self) -> Stream | None:
        """The stream whose turn it is; None while none waits."""
        return self._classes[self._waiting[-1]].next if self._waiting else None

    def take(self, stream: Stream, now: float) -> None:
        """Runs the first stream of a tenant that waits."""
        priority = stream.ticket.priority
        self._classes[priority].take(stream, now)
        self._waits_less(priority)

    def get(self, priority: int) -> PriorityClass | None:
        return self._classes.get(priority)

    def waiting_above(self, priority: int) -> int:
        """Streams of higher classes."""
        above = self._waiting[bisect_left(self._waiting, priority + 1) :]
        return sum(self._classes[each].waiting for each in above)

    def waits_above(self, priority: int) -> bool:
        return bool(self._waiting) and self._waiting[-1] > priority

    def begin(self, stream: Stream) -> None:
        """Runs it without having waited."""
        self._of(stream).begin(stream)

    def end(self, stream: Stream, now: float) -> None:
        priority = stream.ticket.priority
        self._classes[priority].end(stream, now)
        self._forget(priority)

    def place_of(self, ticket: Ticket, nth: int, *, others_return: bool = False) -> int:
        """About where the nth of the streams of its tenant that wait in its class is served: the
        others of the class get service by their weights meanwhile. 1 is next.

        others_return: whether more of their streams come, so that all keep waiting.
        """
        priority = ticket.priority
        place = self.waiting_above(priority)
        one = self._classes.get(priority)
        if one is None or not one.waiting:
            return place + nth
        share = one.shares.get(ticket.tenant)
        others, weight = one.waiting, one.weight
        if share is not None and share.waiting:
            others, weight = others - len(share.waiting), weight - share.weight
        before = nth * weight / ticket.weight
        return place + nth + int(before if others_return else min(others, before))

    def tenants(self) -> dict[str, TenantState]:
        """Those that run or wait, over all classes."""
        found: dict[str, TenantState] = {}
        for one in self._classes.values():
            for name, share in one.shares.items():
                if not share.is_idle:
                    seen = found.get(name)
                    found[name] = TenantState(
                        tenant=name,
                        weight=share.weight,
                        running=share.running + (seen.running if seen else 0),
                        waiting=len(share.waiting) + (seen.waiting if seen else 0),
                    )
        return found

    def served_order(self, stream_cost: float) -> Iterator[Stream | None]:
        """The streams that wait, in the order in which they would be served now.

        stream_cost: what a stream is expected to cost beyond its prompt. Every step is short, and
        some yield None. Streams may come and go between two steps: a tenant's are taken when it is
        its turn for the first time.
        """
        for priority in self._waiting[::-1]:
            if (one := self._classes.get(priority)) is not None:
                yield from _order_of(one, stream_cost)

    def _of(self, stream: Stream) -> PriorityClass:
        priority = stream.ticket.priority
        one = self._classes.get(priority)
        if one is None:
            one = self._classes[priority] = PriorityClass()
        return one

    def _waits_less(self, priority: int) -> None:
        self.waiting -= 1
        if not self._classes[priority].waiting:
            del self._waiting[bisect_left(self._waiting, priority)]

    def _forget(self, priority: int) -> None:
        if self._classes[priority].is_idle:
            del self._classes[priority]


def _order_of(one: PriorityClass, stream_cost: float) -> Iterator[Stream | None]:
    order: list[Entry] = one.order.valid_entries()
    streams: dict[Share, list[Stream]] = {}  # the next is the last
    while order:
        tag, number, share = order[0]
        if share not in streams:
            streams[share] = list(reversed(share.waiting))
            true_key = (share.load, share.first.number if share.waiting else number)
            if true_key != (tag, number):
                heapq.heapreplace(order, (*true_key, share))
                yield None
                continue
        left = streams[share]
        stream = left.pop() if left else None
        if left and stream is not None:
            cost = (stream.ticket.prompt_tokens + stream_cost) / stream.ticket.weight
            heapq.heapreplace(order, (tag + cost, stream.number, share))
        else:
            heapq.heappop(order)
        yield stream
