"""The rules of the fair queue as plain lists that are searched: slow, and easy to check."""

from __future__ import annotations

from dataclasses import dataclass, field

from proxy.scheduling.places import QueueLimits
from proxy.scheduling.priority_class import CREDIT, ROW, SLICE
from tests.doubles.queued_stream import QueuedStream

Tenant = tuple[int, str]  # its class, and its name


@dataclass
class ReferenceQueue:
    """rows: of the engine. holding: streams that have one, in the order in which they got it; the
    others that run wait in the engine.
    """

    limits: QueueLimits
    capacity: int | None = None
    rows: int | None = None
    waiting: list[QueuedStream] = field(default_factory=list)  # in the order of arrival
    running: list[QueuedStream] = field(default_factory=list)
    holding: list[QueuedStream] = field(default_factory=list)
    yielding: list[QueuedStream] = field(default_factory=list)
    counters: dict[Tenant, float] = field(default_factory=dict)
    came_at: dict[Tenant, float] = field(default_factory=dict)
    weights: dict[Tenant, float] = field(default_factory=dict)
    floors: dict[int, float] = field(default_factory=dict)
    granted: list[QueuedStream] = field(default_factory=list)
    preempted: list[QueuedStream] = field(default_factory=list)

    def set_capacity(self, streams: int | None, spare: int) -> None:
        self.capacity = streams
        self.rows = None if streams is None else max(streams - spare, min(streams, 1))
        self.fill()

    def enter(self, stream: QueuedStream, displaced: QueuedStream | None) -> bool:
        """Whether it is not refused. displaced: by the queue under test, which may choose one of
        several tenants with equally many; it may also refuse a stream where half of the places are
        taken, since the others are kept.
        """
        ticket = stream.ticket
        if self._has_place() and self._has_free_row():
            self._begin(stream, has_row=True)
        elif (victim := self._victim_for(stream)) is not None:
            self._wait(stream)
            self._take_over(stream, victim)
        elif self._has_place():
            self._begin(stream, has_row=False)
        elif lower := [each for each in self._below(ticket.priority) if each in self._spares()]:
            self._wait(stream)
            self._take_over(stream, lower[0])
        elif ticket.patience_s == 0 and not ticket.has_begun:
            return False
        else:
            if not ticket.has_begun and not self._make_room(stream, displaced):
                return False
            self._wait(stream)
        return True

    def rearrange(self) -> None:
        while self.waiting:
            stream = self.next()
            victim = self._victim_for(stream)
            if victim is None:
                break
            self._take_over(stream, victim)
        for spare in self._spares():
            if spare.ticket.may_yield and self._victim_for(spare) is not None:
                self._stop(spare)
                break

    def leave(self, stream: QueuedStream) -> None:
        self.waiting.remove(stream)
        tenant = _tenant(stream)
        if not self._waits_in(tenant[0]):
            self.floors[tenant[0]] = max(self.floors.get(tenant[0], 0), self.counters[tenant])
        self._forget_served(tenant[0])
        self._forget_idle_classes()

    def release(self, stream: QueuedStream) -> None:
        self.running.remove(stream)
        for each in (self.yielding, self.holding):
            if stream in each:
                each.remove(stream)
        self._forget_served(stream.ticket.priority)
        self._forget_idle_classes()
        self.fill()

    def charge(self, stream: QueuedStream, cost: float) -> None:
        self.counters[_tenant(stream)] += cost / stream.ticket.weight

    def see_prompt(self, stream: QueuedStream) -> None:
        if stream in self._spares():
            self.holding.append(stream)

    def fill(self) -> None:
        while self._spares() and (self.rows is None or len(self.holding) < self.rows):
            self.holding.append(self._spares()[0])
        while self.waiting and self._has_place():
            stream, has_row = self.next(), self._has_free_row()
            self._leave_queue(stream)
            self._begin(stream, has_row=has_row)
            self._charge_prompt(stream)

    def next(self) -> QueuedStream:
        highest = max(each.ticket.priority for each in self.waiting)
        firsts: dict[Tenant, QueuedStream] = {}
        for each in self.waiting:
            if each.ticket.priority == highest:
                firsts.setdefault(_tenant(each), each)
        order = {tenant: self.waiting.index(first) for tenant, first in firsts.items()}
        return firsts[min(firsts, key=lambda one: (self._load(one), order[one]))]

    def _load(self, tenant: Tenant, rows_less: int = 0) -> float:
        rows = sum(_tenant(each) == tenant for each in self.holding)
        return self.counters[tenant] + ROW * (rows - rows_less) / self.weights[tenant]

    def _victim_for(self, stream: QueuedStream) -> QueuedStream | None:
        """The newest stream of a lower class; else of the tenant with the most load."""
        ticket, tenant = stream.ticket, _tenant(stream)
        lower = [each for each in self._below(ticket.priority) if self._can_yield(each)]
        if lower:
            return lower[0]
        if not self.limits.fair_preemption:
            return None
        if any(each.ticket.priority > ticket.priority for each in self.waiting):
            return None
        own = [each for each in self.waiting if _tenant(each) == tenant]
        if own and not ticket.has_begun and own[0] is not stream:
            return None
        before = self.counters.get(tenant), self.weights.get(tenant), self.came_at.get(tenant)
        if not own:
            self._come(stream)
        load = self._load(tenant)
        a_slice, is_new = SLICE / ticket.weight, self._has_just_come(tenant)
        kept = [each for each in self.holding if each.ticket.priority == ticket.priority]
        others = {_tenant(each) for each in kept} - {tenant}
        ahead = [
            each
            for each in others
            if self._load(each, 1)
            >= load + (0 if is_new and not self._has_just_come(each) else a_slice)
        ]
        victims = [each for each in kept if _tenant(each) in ahead and self._can_yield(each)]
        for kept_values, value in zip(
            (self.counters, self.weights, self.came_at), before, strict=True
        ):
            kept_values.pop(tenant)
            if value is not None:
                kept_values[tenant] = value
        if not victims:
            return None
        newest = {_tenant(each): each.number for each in kept}
        most = max(map(_tenant, victims), key=lambda one: (self._load(one, 1), newest[one]))
        return [each for each in victims if _tenant(each) == most][-1]

    def _has_just_come(self, tenant: Tenant) -> bool:
        return self.counters[tenant] < self.came_at[tenant] + SLICE / self.weights[tenant]

    def _below(self, priority: int) -> list[QueuedStream]:
        """Those of lower classes that may yield: the lowest class first, its newest first."""
        lower = [
            each
            for each in reversed(self.running)
            if each.ticket.may_yield
            and each not in self.yielding
            and each.ticket.priority < priority
        ]
        return sorted(lower, key=lambda each: each.ticket.priority)

    def _can_yield(self, stream: QueuedStream) -> bool:
        least = max(stream.start_tokens // 16, 1 if stream.ticket.has_begun else 0)
        return stream in self.holding and stream.ticket.may_yield and stream.tokens >= least

    def _spares(self) -> list[QueuedStream]:
        return [
            each for each in self.running if each not in self.holding and each not in self.yielding
        ]

    def _take_over(self, stream: QueuedStream, victim: QueuedStream) -> None:
        """It is served as if it had waited."""
        takes_row = victim in self.holding
        stopped = [victim]
        if takes_row and not stream.ticket.engine_takes_priority:
            stopped += [each for each in self._spares() if each.ticket.may_yield]
        for each in stopped:
            self._stop(each)
        self._leave_queue(stream)
        self._begin(stream, has_row=takes_row)
        self._charge_prompt(stream)

    def _stop(self, stream: QueuedStream) -> None:
        self.yielding.append(stream)
        self.preempted.append(stream)
        if stream in self.holding:
            self.holding.remove(stream)

    def _leave_queue(self, stream: QueuedStream) -> None:
        priority = stream.ticket.priority
        self.floors[priority] = max(self.floors.get(priority, 0), self._least(priority))
        self.waiting.remove(stream)

    def _charge_prompt(self, stream: QueuedStream) -> None:
        priority, tenant = _tenant(stream)
        if not self._waits_in(priority):
            self.floors[priority] = max(self.floors[priority], self.counters[priority, tenant])
        self.charge(stream, stream.ticket.prompt_tokens)
        self._forget_served(priority)

    def _has_free_row(self) -> bool:
        return self._has_place() and (self.rows is None or len(self.holding) < self.rows)

    def _has_place(self) -> bool:
        return self.capacity is None or len(self.running) - len(self.yielding) < self.capacity

    def _begin(self, stream: QueuedStream, *, has_row: bool) -> None:
        tenant = _tenant(stream)
        if not stream.waited:
            if tenant not in self.counters:
                self.counters[tenant] = self.came_at[tenant] = self._least(tenant[0])
            if not self._is_active(tenant):
                self.came_at[tenant] = self.counters[tenant]
            self._note_weight(stream)
        self.running.append(stream)
        if has_row:
            self.holding.append(stream)
        self.granted.append(stream)

    def _is_active(self, tenant: Tenant) -> bool:
        return any(_tenant(each) == tenant for each in (*self.waiting, *self.running))

    def _note_weight(self, stream: QueuedStream) -> None:
        """The newest counts, of those that come while none of the tenant waits."""
        tenant = _tenant(stream)
        if not any(_tenant(each) == tenant for each in self.waiting):
            self.weights[tenant] = stream.ticket.weight

    def _come(self, stream: QueuedStream) -> None:
        """Its tenant has none that waits."""
        tenant = _tenant(stream)
        self._note_weight(stream)
        runs = any(_tenant(each) == tenant for each in self.running)
        least = self._least(tenant[0]) - (CREDIT / stream.ticket.weight if runs else 0)
        if tenant not in self.counters:
            self.counters[tenant] = self._least(tenant[0])
            self.came_at[tenant] = self.counters[tenant]
        self.counters[tenant] = max(self.counters[tenant], least)
        if not runs:
            self.came_at[tenant] = self.counters[tenant]

    def _wait(self, stream: QueuedStream) -> None:
        stream.waited = True
        if not any(_tenant(each) == _tenant(stream) for each in self.waiting):
            self._come(stream)
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
            if displaced is None:
                return self._may_keep_others(own, len(counted))
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
