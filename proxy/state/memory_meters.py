"""The meters of one proxy, in its memory. The count of its own beside Redis uses it, too.

Times are microseconds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from typing_extensions import Self

from proxy.state.meters import (
    BUCKETS,
    GAUGE_WAIT_US,
    NEVER_US,
    Grant,
    LedgerUnavailable,
    Meter,
    MeterKind,
    Refusal,
    Standing,
)

Charge = tuple[Meter, int, int]  # meter, mark, amount


# The state of one meter, by its kind. meter: as it was given last; its limit may change. `wait_us`
# is 0 where an amount fits. `add` counts it, also beyond the limit, and returns its mark. `replace`
# changes a reserved amount to another, at its mark; at the end of the request, to what was used.
# `charges`: what was counted here and is kept, for a shared state that was lost.


class Rate:
    """GCRA: `_full_at` is when the burst is whole again (the theoretical arrival time), which is
    also the mark of the last request. Only the last can be given back: what was granted after it
    depends on it.
    """

    __slots__ = ("_full_at", "meter")

    def __init__(self, meter: Meter) -> None:
        self.meter = meter
        self._full_at = 0

    def wait_us(self, now: int, amount: int) -> int:
        meter = self.meter
        if amount > meter.limit:
            return NEVER_US
        most = now + meter.limit * meter.span_us
        full_at = min(max(self._full_at, now), most) + amount * meter.span_us
        return max(full_at - most, 0)

    def add(self, now: int, amount: int) -> int:
        meter = self.meter
        most = now + meter.limit * meter.span_us
        full_at = min(max(self._full_at, now) + amount * meter.span_us, most)
        if amount:
            self._full_at = full_at
        return full_at

    def replace(self, mark: int, reserved: int, amount: int, *, is_end: bool) -> None:
        if self._full_at == mark:
            self._full_at += (amount - reserved) * self.meter.span_us

    def standing(self, now: int) -> Standing:
        most = self.meter.limit * self.meter.span_us
        ahead = min(max(self._full_at - now, 0), most)
        return (most - ahead) // self.meter.span_us, ahead

    def is_idle(self, now: int) -> bool:
        return self._full_at <= now

    def charges(self) -> Iterable[Charge]:
        return ()


class Window:
    """Amounts by the 128th of the window in which they were taken, which is their mark."""

    __slots__ = ("_amounts", "_part_us", "_total", "meter")

    def __init__(self, meter: Meter) -> None:
        self.meter = meter
        self._part_us = meter.span_us // BUCKETS
        self._amounts: dict[int, int] = {}  # the oldest first
        self._total = 0

    def wait_us(self, now: int, amount: int) -> int:
        self._forget(now)
        surplus = self._total + amount - self.meter.limit
        if not amount or surplus <= 0:
            return 0
        if amount > self.meter.limit:
            return NEVER_US
        for part, taken in self._amounts.items():
            surplus -= taken
            if surplus <= 0:
                return self._leaves_us(part, now)
        raise AssertionError("the parts of a window add up to its total")

    def add(self, now: int, amount: int) -> int:
        part = now // self._part_us
        if amount:
            self._amounts[part] = self._amounts.get(part, 0) + amount
            self._total += amount
            self._forget(now)
        return part

    def replace(self, mark: int, reserved: int, amount: int, *, is_end: bool) -> None:
        """What has left the window is not counted again."""
        if mark in self._amounts:
            self._amounts[mark] += amount - reserved
            self._total += amount - reserved

    def standing(self, now: int) -> Standing:
        self._forget(now)
        newest = next(reversed(self._amounts), None)
        reset_us = 0 if newest is None else self._leaves_us(newest, now)
        return max(self.meter.limit - self._total, 0), reset_us

    def is_idle(self, now: int) -> bool:
        self._forget(now)
        return not self._amounts

    def charges(self) -> Iterable[Charge]:
        return ((self.meter, part, amount) for part, amount in self._amounts.items())

    def _leaves_us(self, part: int, now: int) -> int:
        return (part + 1 + BUCKETS) * self._part_us - now

    def _forget(self, now: int) -> None:
        oldest = now // self._part_us - BUCKETS
        while self._amounts and (part := next(iter(self._amounts))) < oldest:
            self._total -= self._amounts.pop(part)


class Held:
    """A GAUGE or a PERIOD. held: reserved by running requests. used: settled, of a PERIOD."""

    __slots__ = ("_used", "held", "meter")

    def __init__(self, meter: Meter) -> None:
        self.meter = meter
        self.held, self._used = 0, meter.opening

    def wait_us(self, now: int, amount: int) -> int:
        meter = self.meter
        if not amount or self._used + self.held + amount <= meter.limit:
            return 0
        if amount > meter.limit:
            return NEVER_US
        return GAUGE_WAIT_US if meter.kind is MeterKind.GAUGE else max(meter.span_us - now, 1)

    def add(self, now: int, amount: int) -> int:
        self.held += amount
        return 0

    def replace(self, mark: int, reserved: int, amount: int, *, is_end: bool) -> None:
        self.held -= reserved
        if not is_end:
            self.held += amount
        elif self.meter.kind is MeterKind.PERIOD:
            self._used += amount

    def standing(self, now: int) -> Standing:
        left = self.meter.limit - self._used - self.held
        return max(left, 0), max(self.meter.span_us - now, 0)  # a gauge's span is 0

    def is_idle(self, now: int) -> bool:
        return not self.held and now >= self.meter.span_us

    def charges(self) -> Iterable[Charge]:
        if self.meter.kind is MeterKind.PERIOD:
            yield self.meter, 0, self._used - self.meter.opening


MeterState = Rate | Window | Held
STATES: dict[MeterKind, Callable[[Meter], MeterState]] = {
    MeterKind.RATE: Rate,
    MeterKind.WINDOW: Window,
    MeterKind.GAUGE: Held,
    MeterKind.PERIOD: Held,
}

MOST_METERS = 1_000_000
FIRST_SWEEP = 4_096
FULL_US = 1_000_000  # until a full ledger looks for idle meters again
_EPOCH_NS = time.time_ns() - time.monotonic_ns()

Clock = Callable[[], int]


def steady_us() -> int:
    """Microseconds since 1970 that never go back: the time of the start, and what passed since."""
    return (_EPOCH_NS + time.monotonic_ns()) // 1000


class InProcessLedger:
    """Implements meters.Ledger. A meter that is idle is forgotten.

    most: meters in memory; a request that needs another one is refused, since forgetting one in
    use would let more through than its limit.
    """

    outage: str | None = None
    proxies = 1

    def __init__(self, clock: Clock = steady_us, *, most: int = MOST_METERS) -> None:
        self._clock = clock
        self._most = most
        self._states: dict[str, MeterState] = {}
        self._sweep_at = min(FIRST_SWEEP, most)
        self._full_until = 0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        pass

    async def reserve(self, meters: Sequence[Meter], amounts: Sequence[int]) -> Grant | Refusal:
        return self.take(meters, amounts)

    def take(self, meters: Sequence[Meter], amounts: Sequence[int]) -> Grant | Refusal:
        """As `reserve`, without waiting."""
        now = self._clock()
        states = self._found(meters, now)
        longest, at = 0, 0
        for index, (amount, state) in enumerate(zip(amounts, states, strict=True)):
            wait = state.wait_us(now, amount)
            if wait > longest:
                longest, at = wait, index
        if longest:
            return Refusal(meters, at, longest, partial(_look, self._clock, states))
        return self._added(now, meters, amounts, states)

    def record(self, meters: Sequence[Meter], amounts: Sequence[int]) -> Grant:
        """Counts amounts that another ledger has granted, even beyond the limits."""
        now = self._clock()
        return self._added(now, meters, amounts, self._found(meters, now))

    def _added(
        self,
        now: int,
        meters: Sequence[Meter],
        amounts: Sequence[int],
        states: Sequence[MeterState],
    ) -> Grant:
        marks = [state.add(now, amount) for amount, state in zip(amounts, states, strict=True)]
        return Grant(meters, amounts, partial(_look, self._clock, states), marks)

    def amend(self, grant: Grant, amounts: Sequence[int]) -> None:
        self._replace(grant, amounts, is_end=False)
        grant.amounts = amounts

    def settle(self, grant: Grant, amounts: Sequence[int]) -> None:
        if not grant.is_settled:
            grant.is_settled = True
            self._replace(grant, amounts, is_end=True)

    def _replace(self, grant: Grant, amounts: Sequence[int], *, is_end: bool) -> None:
        for meter, mark, reserved, amount in zip(
            grant.meters, grant.marks, grant.amounts, amounts, strict=True
        ):
            changes = amount != reserved or (is_end and meter.kind >= MeterKind.GAUGE)
            if changes and (state := self._states.get(meter.key)) is not None:
                state.replace(mark, reserved, amount, is_end=is_end)

    def held(self, meter: Meter) -> int:
        """What running requests hold of a gauge or period."""
        state = self._states.get(meter.key)
        return state.held if isinstance(state, Held) else 0

    def charges(self) -> list[Charge]:
        """What was counted here and is kept, of all meters."""
        return [charge for state in self._states.values() for charge in state.charges()]

    def _found(self, meters: Sequence[Meter], now: int) -> list[MeterState]:
        states = self._states
        if len(states) + len(meters) > self._sweep_at:
            new = sum(meter.key not in states for meter in meters)
            if new:
                self._sweep(now, new)
        found = []
        for meter in meters:
            state = states.get(meter.key)
            if state is None:
                state = states[meter.key] = STATES[meter.kind](meter)
            state.meter = meter
            found.append(state)
        return found

    def _sweep(self, now: int, more: int) -> None:
        """Each time that the number of meters has doubled, so that it costs little a meter."""
        if now < self._full_until:
            raise LedgerUnavailable(f"{len(self._states)} meters are in use: there is no room")
        idle = [key for key, state in self._states.items() if state.is_idle(now)]
        for key in idle:
            del self._states[key]
        if len(self._states) + more > self._most:
            self._full_until = now + FULL_US
            raise LedgerUnavailable(f"{len(self._states)} meters are in use: there is no room")
        self._sweep_at = min(max(2 * len(self._states), FIRST_SWEEP), self._most)


def _look(clock: Clock, states: Sequence[MeterState], at: int) -> Standing:
    return states[at].standing(clock())
