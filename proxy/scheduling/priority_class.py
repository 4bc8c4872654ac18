"""The fair order of each class, and the classes of one queue: virtual token counters (Sheng et al.,
OSDI 2024).

The tenant with the least load goes first: its counter, and what its rows will give it. The counter
of a tenant that comes back from idling is lifted to the least of those that wait,
so that nobody saves up service. One whose streams run while none of them waits keeps a bounded
credit: without it, a tenant with few streams loses a part of its share whenever all of them run.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from itertools import islice

from proxy.domain.scheduling import TenantState, Ticket
from proxy.scheduling.service_rate import ServiceRate
from proxy.scheduling.stream import Stream

SPARE_ENTRIES = 64
ROW = 1_024  # service that a row stands for while a stream holds it
SLICE = 256  # service by which a tenant is ahead of another before it gives up a row to it

REBASE_AT = 1e12  # far below 2**53, above which a float loses single tokens
CREDIT = 16_384  # tokens of a prompt, by weight
LOOKED_AT = 16  # streams of a tenant, the newest first
IDLE_TENANTS = 4_096  # that are remembered, because they have had more than others

Entry = tuple[float, int, "Share"]


class Share:
    """One tenant's share of a class."""

    __slots__ = (
        "came_at",
        "counter",
        "entry",
        "holding",
        "rate",
        "running",
        "waiting",
        "weight",
    )

    def __init__(self, counter: float, weight: float) -> None:
        self.counter = counter  # its service, divided by its weight
        self.came_at = counter  # what it was when its first stream came after it had none
        self.weight = weight
        self.waiting: OrderedDict[Stream, None] = OrderedDict()
        self.running = 0
        self.holding: OrderedDict[Stream, None] = OrderedDict()  # they have rows, and keep them
        self.entry: Entry | None = None  # its valid one in the order; None while nothing waits
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
    """Tenants with streams that wait, by their counters: a heap.

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


class PriorityClass:
    """waiting, running: streams. holders: tenants with rows. weight: of those with streams that
    wait.
    """

    def __init__(self) -> None:
        self.shares: dict[str, Share] = {}
        self.order = ServiceOrder()
        self.waiting = 0
        self.running = 0
        self.holders: dict[Share, None] = {}
        self.weight = 0.0
        self._floor = 0.0  # the counter of the tenant that was served last
        self._idle: OrderedDict[str, None] = OrderedDict()  # the longest first
        self._waited_until = -math.inf

    @property
    def is_idle(self) -> bool:
        return not (self.running or self.waiting)

    def has_waited_since(self, time: float) -> bool:
        return self.waiting > 0 or self._waited_until > time

    def enter(self, stream: Stream) -> None:
        share = self._share(stream)
        has_entry = share.entry is not None
        if not has_entry:
            lifted = self._lifted(share, share.weight)
            if share.is_idle:
                share.came_at = lifted
            share.counter = lifted
            self.weight += share.weight
        share.waiting[stream] = None
        if stream.ticket.has_begun:
            share.waiting.move_to_end(stream, last=False)
        self.waiting += 1
        if not has_entry or stream.ticket.has_begun:
            self.order.add(share)

    def leave(self, stream: Stream, now: float) -> None:
        share = self.shares[stream.ticket.tenant]
        del share.waiting[stream]
        self._waits_less(share, now)
        self._ended(stream.ticket.tenant, share)

    @property
    def next(self) -> Stream | None:
        """The stream whose turn it is."""
        share = self.order.next()
        return None if share is None else share.first

    def take(self, stream: Stream, now: float) -> None:
        """It is the first of its tenant. It runs from now on, and its prompt is charged."""
        share = self.shares[stream.ticket.tenant]
        self._floor = max(self._floor, self.least())
        share.running += 1
        self.running += 1
        del share.waiting[stream]
        self._waits_less(share, now)
        stream.prompt_charged = stream.ticket.prompt_tokens
        self.charge(stream, stream.prompt_charged)
        if self._floor > REBASE_AT:
            self._rebase()

    def begin(self, stream: Stream) -> None:
        """Runs it without having waited."""
        self._share(stream).running += 1
        self.running += 1

    def hold(self, stream: Stream, now: float) -> None:
        """It has a row."""
        share = self.shares[stream.ticket.tenant]
        share.holding[stream] = None
        share.rate.running(len(share.holding), now)
        self.holders[share] = None

    def let_go(self, stream: Stream, now: float) -> None:
        """The stream has ended, or has to stop."""
        share = self.shares[stream.ticket.tenant]
        share.holding.pop(stream, None)
        share.rate.running(len(share.holding), now)
        if not share.holding:
            self.holders.pop(share, None)

    def expected_rows(self, share: Share, rows: int) -> float:
        """How many of the rows its tenant will have while it waits: those that always wait divide
        by weight what the others leave them.
        """
        others = [each for each in self.holders if not each.waiting]
        left = rows - sum(len(each.holding) for each in others)
        least = rows / (self.weight + sum(each.weight for each in others))
        return max(left / self.weight, least) * share.weight

    def end(self, stream: Stream, now: float) -> None:
        self.let_go(stream, now)
        share = self.shares[stream.ticket.tenant]
        share.running -= 1
        self.running -= 1
        self._ended(stream.ticket.tenant, share)

    def charge(self, stream: Stream, cost: float) -> None:
        """cost: in tokens of a prompt; below zero it is given back."""
        share = self.shares[stream.ticket.tenant]
        share.counter += cost / stream.ticket.weight
        if cost < 0 and share.entry is not None:
            self.order.add(share)

    def load_of(self, ticket: Ticket) -> float:
        """The load of its tenant when another stream of it comes."""
        share = self.shares.get(ticket.tenant)
        if share is None:
            return self.least()
        if share.waiting:
            return share.load
        return self._lifted(share, ticket.weight) + ROW * len(share.holding) / ticket.weight

    def least(self) -> float:
        """The counter of the tenant that has had the least service, of those that wait."""
        share = self.order.first()
        return self._floor if share is None else share.counter

    def _share(self, stream: Stream) -> Share:
        ticket = stream.ticket
        share = self.shares.get(ticket.tenant)
        if share is None:
            share = self.shares[ticket.tenant] = Share(self.least(), ticket.weight)
        elif not share.waiting:
            share.weight = stream.ticket.weight
        if share.is_idle:
            self._idle.pop(ticket.tenant, None)
            share.came_at = share.counter = max(share.counter, self.least())
        return share

    def _lifted(self, share: Share, weight: float) -> float:
        """Its counter when it has nothing waiting, and comes to wait."""
        credit = CREDIT / weight if share.running else 0.0
        return max(share.counter, self.least() - credit)

    def _ended(self, tenant: str, share: Share) -> None:
        """Forgets an idle tenant that has had no more than a new one begins with."""
        if not share.is_idle:
            return
        if share.counter <= self.least():
            del self.shares[tenant]
            return
        self._idle[tenant] = None
        if len(self._idle) > IDLE_TENANTS:
            del self.shares[self._idle.popitem(last=False)[0]]

    def _waits_less(self, share: Share, now: float) -> None:
        self.waiting -= 1
        self._waited_until = now
        if not share.waiting:
            self.order.remove(share)
            self.weight = self.weight - share.weight if self.order.tenants else 0.0
            if not self.waiting:
                self._floor = max(self._floor, share.counter)

    def _rebase(self) -> None:
        """Takes the floor from all counters: only their differences count."""
        base, self._floor = self._floor, 0.0
        for share in self.shares.values():
            share.came_at -= base
            share.counter = max(share.counter - base, 0.0)
        self.order.rebuild(self.shares.values())


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


def victim_for(ticket: Ticket, of_class: PriorityClass) -> Stream | None:
    """The stream that makes room for the next one of a tenant; None if that has to wait.

    A row belongs to the tenant that has less load without it. The slice keeps two tenants with the
    same load from taking it from each other at each token; a tenant that has just come need not
    wait for it, unless the other one has just come, too.
    """
    load, a_slice = of_class.load_of(ticket), SLICE / ticket.weight
    own = of_class.shares.get(ticket.tenant)
    has_just_come = own is None or own.has_just_come
    ahead = [
        each
        for each in of_class.holders
        if each is not own
        and each.load_without_a_row
        >= load + (0 if has_just_come and not each.has_just_come else a_slice)
    ]
    ahead.sort(key=lambda one: (one.load_without_a_row, one.newest.number), reverse=True)
    for each in ahead:
        for stream in islice(reversed(each.holding), LOOKED_AT):
            if stream.can_yield:
                return stream
    return None
