"""The fair order of one class: virtual token counters (Sheng et al., OSDI 2024).

The tenant with the least load goes first: its counter, and what its rows will give it. The counter
of a tenant that comes back from idling is lifted to the least of those that wait,
so that nobody saves up service. One whose streams run while none of them waits keeps a bounded
credit: without it, a tenant with few streams loses a part of its share whenever all of them run.
"""

from __future__ import annotations

import math

from proxy.domain.scheduling import Ticket
from proxy.scheduling.owing import Owing
from proxy.scheduling.service_order import ROW, ServiceOrder, Share
from proxy.scheduling.stream import Stream

REBASE_AT = 1e12  # far below 2**53, above which a float loses single tokens
CREDIT = 16_384  # tokens of a prompt, by weight


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
        self._owing = Owing()
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
        self._forget_served()
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
            share.came_at = share.counter
        return share

    def _lifted(self, share: Share, weight: float) -> float:
        """Its counter when it has nothing waiting, and comes to wait."""
        credit = CREDIT / weight if share.running else 0.0
        return max(share.counter, self.least() - credit)

    def _ended(self, tenant: str, share: Share) -> None:
        if share.is_idle:
            self._owing.add(tenant, share)
        self._forget_served()

    def _waits_less(self, share: Share, now: float) -> None:
        self.waiting -= 1
        self._waited_until = now
        if not share.waiting:
            self.order.remove(share)
            self.weight = self.weight - share.weight if self.order.tenants else 0.0
            if not self.waiting:
                self._floor = max(self._floor, share.counter)

    def _forget_served(self) -> None:
        for tenant in self._owing.pop_served(self.least()):
            del self.shares[tenant]

    def _rebase(self) -> None:
        """Takes the floor from all counters: only their differences count."""
        base, self._floor = self._floor, 0.0
        for share in self.shares.values():
            share.came_at -= base
            share.counter = max(share.counter - base, 0.0)
        self.order.rebuild(self.shares.values())
        self._owing.rebuild()
