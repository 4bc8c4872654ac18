"""The rules of the fair queue as plain lists that are searched: slow, and easy to check."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.doubles.queued_stream import QueuedStream
from triton_openai.proxy.scheduling.limits import QueueLimits
from triton_openai.proxy.scheduling.priority_class import CREDIT

Tenant = tuple[int, str]  # its class, and its name


@dataclass
class ReferenceQueue:
    limits: QueueLimits
    capacity: int | None = None
    waiting: list[QueuedStream] = field(default_factory=list)  # in the order of arrival
    running: list[QueuedStream] = field(default_factory=list)
    yielding: list[QueuedStream] = field(default_factory=list)
    counters: dict[Tenant, float] = field(default_factory=dict)
    weights: dict[Tenant, float] = field(default_factory=dict)
    floors: dict[int, float] = field(default_factory=dict)
    granted: list[QueuedStream] = field(default_factory=list)
    preempted: list[QueuedStream] = field(default_factory=list)

    def enter(self, stream: QueuedStream, displaced: QueuedStream | None) -> bool:
        """Whether it is not refused. displaced: by the queue under test, which may choose one of
        several tenants with equally many; it may also refuse a stream where half of the places are
        taken, since the others are kept.
        """
        ticket = stream.ticket
        lower = [
            each
            for each in self.running
            if each.ticket.may_yield
            and each not in self.yielding
            and each.ticket.priority < ticket.priority
        ]
        if self._has_free_row():
            self._begin(stream)
        elif lower:
            lowest = min(each.ticket.priority for each in lower)
            victim = [each for each in lower if each.ticket.priority == lowest][-1]
            self.yielding.append(victim)
            self.preempted.append(victim)
            self._begin(stream)
        elif (above := self._above_its_share(stream)) is not None:
            self.yielding.append(above)
            self.preempted.append(above)
            self._take(stream)
        elif ticket.patience_s == 0 and not ticket.has_begun:
            return False
        else:
            if not ticket.has_begun and not self._make_room(stream, displaced):
                return False
            self._wait(stream)
        return True

    def leave(self, stream: QueuedStream) -> None:
        self.waiting.remove(stream)
        tenant = _tenant(stream)
        if not self._waits_in(tenant[0]):
            self.floors[tenant[0]] = max(self.floors.get(tenant[0], 0), self.counters[tenant])
        self._forget_served(tenant[0])
        self._forget_idle_classes()

    def release(self, stream: QueuedStream) -> None:
        self.running.remove(stream)
        if stream in self.yielding:
            self.yielding.remove(stream)
        self._forget_served(stream.ticket.priority)
        self._forget_idle_classes()
        self.fill()

    def charge(self, stream: QueuedStream, cost: float) -> None:
        self.counters[_tenant(stream)] += cost / stream.ticket.weight

    def fill(self) -> None:
        while self.waiting and self._has_free_row():
            stream = self.next()
            tenant = _tenant(stream)
            self.floors[tenant[0]] = max(self.floors.get(tenant[0], 0), self.counters[tenant])
            self.waiting.remove(stream)
            self._begin(stream)
            self.charge(stream, stream.ticket.prompt_tokens)
            self._forget_served(tenant[0])

    def next(self) -> QueuedStream:
        highest = max(each.ticket.priority for each in self.waiting)
        firsts: dict[Tenant, QueuedStream] = {}
        for each in self.waiting:
            if each.ticket.priority == highest:
                firsts.setdefault(_tenant(each), each)
        order = {tenant: self.waiting.index(first) for tenant, first in firsts.items()}
        return firsts[min(firsts, key=lambda tenant: (self.counters[tenant], order[tenant]))]

    def _above_its_share(self, stream: QueuedStream) -> QueuedStream | None:
        """The newest stream of a tenant that keeps its share without it, if this one's has less."""
        ticket, tenant = stream.ticket, _tenant(stream)
        if not self.limits.fair_preemption or ticket.has_begun:
            return None
        if any(each.ticket.priority > ticket.priority for each in self.waiting):
            return None
        if any(_tenant(each) == tenant for each in self.waiting):
            return None
        running = [each for each in self.running if each.ticket.priority == ticket.priority]
        kept = [each for each in running if each not in self.yielding]
        is_active = any(_tenant(each) == tenant for each in running)
        if self.counters.get(tenant, 0) > self._least(ticket.priority):
            return None
        active = {_tenant(each) for each in (*running, *self._waits_in(ticket.priority))} | {tenant}
        weights = {each: self.weights[each] for each in active - {tenant}}
        weights[tenant] = self.weights[tenant] if is_active else ticket.weight
        a_weight = len(kept) / sum(weights.values())
        rows = {each: sum(_tenant(one) == each for one in kept) for each in active}
        if rows[tenant] + 1 > a_weight * ticket.weight:
            return None
        above = [
            each
            for each in kept
            if each.ticket.may_yield
            and _tenant(each) != tenant
            and rows[_tenant(each)] - 1 >= a_weight * weights[_tenant(each)]
        ]
        return above[-1] if above else None

    def _take(self, stream: QueuedStream) -> None:
        """It is served as if it had waited."""
        tenant = _tenant(stream)
        self._wait(stream)
        self.floors[tenant[0]] = max(self.floors.get(tenant[0], 0), self.counters[tenant])
        self.waiting.remove(stream)
        self._begin(stream)
        self.charge(stream, stream.ticket.prompt_tokens)
        self._forget_served(tenant[0])

    def _has_free_row(self) -> bool:
        return self.capacity is None or len(self.running) - len(self.yielding) < self.capacity

    def _begin(self, stream: QueuedStream) -> None:
        tenant = _tenant(stream)
        self.counters.setdefault(tenant, self._least(tenant[0]))
        self._note_weight(stream)
        self.running.append(stream)
        self.granted.append(stream)

    def _note_weight(self, stream: QueuedStream) -> None:
        """The newest counts, of those that come while none of the tenant waits."""
        tenant = _tenant(stream)
        if not any(_tenant(each) == tenant for each in self.waiting) and not stream.waited:
            self.weights[tenant] = stream.ticket.weight

    def _wait(self, stream: QueuedStream) -> None:
        tenant = _tenant(stream)
        self._note_weight(stream)
        stream.waited = True
        if not any(_tenant(each) == tenant for each in self.waiting):
            runs = any(_tenant(each) == tenant for each in self.running)
            least = self._least(tenant[0]) - (CREDIT / stream.ticket.weight if runs else 0)
            self.counters[tenant] = max(self.counters.get(tenant, least), least)
        self.waiting.insert(0 if stream.ticket.has_begun else len(self.waiting), stream)

    def _least(self, priority: int) -> float:
        waiting = self._waits_in(priority)
        if not waiting:
            return self.floors.get(priority, 0)
        return min(self.counters[_tenant(each)] for each in waiting)

    def _waits_in(self, priority: int) -> list[QueuedStream]:
        return [each for each in self.waiting if each.ticket.priority == priority]

    def _make_room(self, stream: QueuedStream, displaced: QueuedStream | None) -> bool:
        counted = [each for each in self.waiting if not each.ticket.has_begun]
        sizes: dict[str, int] = {}
        for each in counted:
            sizes[each.ticket.tenant] = sizes.get(each.ticket.tenant, 0) + 1
        own = sizes.get(stream.ticket.tenant, 0)
        is_full = own >= self.limits.waiting_per_tenant
        if len(counted) < self.limits.waiting and not is_full and displaced is None:
            return stream.error is None or self._may_keep_others(own, len(counted))
        fattest = {tenant for tenant, size in sizes.items() if size == max(sizes.values())}
        lower = [
            each
            for each in counted
            if each.ticket.tenant == stream.ticket.tenant
            and each.ticket.priority < stream.ticket.priority
        ]
        if not is_full and own + 1 < max(sizes.values(), default=0):
            assert displaced is not None
            assert displaced.ticket.tenant in fattest
        elif lower:
            assert displaced in lower
        else:
            assert displaced is None
            return False
        of_tenant = [each for each in counted if each.ticket.tenant == displaced.ticket.tenant]
        lowest = min(each.ticket.priority for each in of_tenant)
        assert displaced is [each for each in of_tenant if each.ticket.priority == lowest][-1]
        self.leave(displaced)
        return True

    def _may_keep_others(self, own: int, counted: int) -> bool:
        of_tenant, of_all = self.limits.waiting_per_tenant, self.limits.waiting
        assert own >= of_tenant - of_tenant // 2 or counted >= of_all - of_all // 2
        return False

    def _forget_served(self, priority: int) -> None:
        """Idle tenants that have had no more than a new one would begin with."""
        least = self._least(priority)
        active = {_tenant(each) for each in (*self.waiting, *self.running)}
        for tenant, counter in tuple(self.counters.items()):
            if tenant[0] == priority and tenant not in active and counter <= least:
                del self.counters[tenant]

    def _forget_idle_classes(self) -> None:
        """Where nobody of a class runs or waits, nobody of it has had more than another."""
        used = {each.ticket.priority for each in (*self.waiting, *self.running)}
        self.counters = {each: count for each, count in self.counters.items() if each[0] in used}
        self.floors = {each: floor for each, floor in self.floors.items() if each in used}


def _tenant(stream: QueuedStream) -> Tenant:
    return stream.ticket.priority, stream.ticket.tenant
