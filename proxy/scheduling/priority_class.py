"""The fair order of one class: virtual token counters (Sheng et al., OSDI 2024).

The tenant with the least counter goes first. The counter of a tenant that comes back from idling
is lifted to the least of those that wait, so that nobody saves up service. One whose streams run
while none of them waits keeps a bounded credit: without it, a tenant with few streams loses a part
of its share whenever all of them run.
"""

from __future__ import annotations

import math

from triton_openai.proxy.scheduling.owing import Owing
from triton_openai.proxy.scheduling.service_order import ServiceOrder, Share
from triton_openai.proxy.scheduling.stream import Stream

REBASE_AT = 1e12  # far below 2**53, above which a float loses single tokens
CREDIT = 16_384  # tokens of a prompt, by weight


class PriorityClass:
    """waiting, running, yielding: streams. weight: of all tenants with streams that wait.
    active_weight: of those with any stream.
    """

    def __init__(self) -> None:
        self.shares: dict[str, Share] = {}
        self.order = ServiceOrder()
        self.waiting = 0
        self.running = 0
        self.yielding = 0
        self.weight = 0.0
        self.active_weight = 0.0
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
        share.waiting[stream] = None
        if stream.ticket.has_begun:
            share.waiting.move_to_end(stream, last=False)
        if share.entry is None:
            credit = CREDIT / stream.ticket.weight if share.running else 0.0
            share.counter = max(share.counter, self.least() - credit)
            self.weight += share.weight
        self.waiting += 1
        if share.entry is None or stream.ticket.has_begun:
            self.order.add(share)

    def leave(self, stream: Stream, now: float) -> None:
        share = self.shares[stream.ticket.tenant]
        del share.waiting[stream]
        self._waits_less(share, now)
        self._ended(stream.ticket.tenant, share)

    def take_first(self, now: float) -> Stream:
        """The stream whose turn it is. It runs from now on, and its prompt is charged."""
        share = self.order.first()
        assert share is not None, "nobody waits"
        return self._take(share, now)

    def take(self, stream: Stream, now: float) -> None:
        """Runs it at once, in place of another one. Its tenant has none that waits."""
        self.enter(stream)
        self._take(self.shares[stream.ticket.tenant], now)

    def _take(self, share: Share, now: float) -> Stream:
        self._floor = max(self._floor, share.counter)
        stream = share.first
        share.running += 1
        self.running += 1
        del share.waiting[stream]
        self._waits_less(share, now)
        stream.prompt_charged = stream.ticket.prompt_tokens
        self.charge(stream, stream.prompt_charged)
        self._forget_served()
        if self._floor > REBASE_AT:
            self._rebase()
        return stream

    def begin(self, stream: Stream) -> None:
        self._share(stream).running += 1
        self.running += 1

    def yields(self, stream: Stream) -> None:
        """It was told to stop."""
        self.shares[stream.ticket.tenant].yielding += 1
        self.yielding += 1

    def end(self, stream: Stream) -> None:
        share = self.shares[stream.ticket.tenant]
        if stream.is_yielding:
            share.yielding -= 1
            self.yielding -= 1
        share.running -= 1
        self.running -= 1
        self._ended(stream.ticket.tenant, share)

    def charge(self, stream: Stream, cost: float) -> None:
        """cost: in tokens of a prompt; below zero it is given back."""
        share = self.shares[stream.ticket.tenant]
        share.counter += cost / stream.ticket.weight
        if cost < 0 and share.entry is not None:
            self.order.add(share)

    def least(self) -> float:
        """The counter of the tenant whose turn it is."""
        share = self.order.first()
        return self._floor if share is None else share.counter

    def _share(self, stream: Stream) -> Share:
        ticket = stream.ticket
        share = self.shares.get(ticket.tenant)
        if share is None:
            share = self.shares[ticket.tenant] = Share(self.least(), ticket.weight)
        elif not share.waiting:
            if share.running:
                self.active_weight += ticket.weight - share.weight
            share.weight = ticket.weight
        if share.is_idle:
            self.active_weight += share.weight
        return share

    def _ended(self, tenant: str, share: Share) -> None:
        if share.is_idle:
            self.active_weight -= share.weight
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
            share.counter = max(share.counter - base, 0.0)
        self.order.rebuild(self.shares.values())
        self._owing.rebuild()
