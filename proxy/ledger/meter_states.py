"""The state of one meter of each kind, in memory. Used by `in_process`. Times are microseconds.

`take` counts an amount and returns its mark, or returns the wait as a negative number and counts
nothing. `replace` changes a reserved amount to another, at its mark; `settle` to what was used.
`add` counts an amount beyond the limit, too.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from proxy.ledger.port import (
    BUCKETS,
    GAUGE_WAIT_US,
    NEVER_US,
    Meter,
    MeterKind,
    Standing,
)

Charge = tuple[Meter, int, int]  # meter, mark, amount


class MeterState(Protocol):
    def take(self, now: int, amount: int, meter: Meter) -> int: ...

    def add(self, now: int, amount: int, meter: Meter) -> int: ...

    def replace(self, mark: int, reserved: int, amount: int) -> None: ...

    def settle(self, mark: int, reserved: int, amount: int) -> None: ...

    def standing(self, now: int, meter: Meter) -> Standing: ...

    def is_idle(self, now: int) -> bool: ...

    def charges(self) -> Iterable[Charge]:
        """What was counted here and is kept: for a shared state that was lost."""
        ...


class Rate:
    """GCRA: `_full_at` is when the burst is whole again (the theoretical arrival time), which is
    also the mark of the last request. Only the last can be given back: what was granted after it
    depends on it.
    """

    __slots__ = ("_full_at", "_interval_us")

    def __init__(self, meter: Meter) -> None:
        self._full_at = 0
        self._interval_us = meter.span_us

    def take(self, now: int, amount: int, meter: Meter) -> int:
        interval = self._interval_us = meter.span_us
        most, full_at = now + meter.limit * interval, self._full_at
        full_at = (now if full_at < now else min(full_at, most)) + amount * interval
        if full_at > most and amount:
            return -NEVER_US if amount > meter.limit else most - full_at
        if amount:
            self._full_at = full_at
        return full_at

    def add(self, now: int, amount: int, meter: Meter) -> int:
        most = now + meter.limit * meter.span_us
        full_at = min(max(self._full_at, now) + amount * meter.span_us, most)
        if amount:
            self._full_at = full_at
        return full_at

    def replace(self, mark: int, reserved: int, amount: int) -> None:
        if self._full_at == mark:
            self._full_at += (amount - reserved) * self._interval_us

    settle = replace

    def standing(self, now: int, meter: Meter) -> Standing:
        most = meter.limit * meter.span_us
        ahead = min(max(self._full_at - now, 0), most)
        return (most - ahead) // meter.span_us, ahead

    def is_idle(self, now: int) -> bool:
        return self._full_at <= now

    def charges(self) -> Iterable[Charge]:
        return ()


class Window:
    """Amounts by the 128th of the window in which they were taken, which is their mark."""

    __slots__ = ("_amounts", "_leaves_at", "_meter", "_part_us", "_total")

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self._part_us = meter.span_us // BUCKETS
        self._amounts: dict[int, int] = {}  # the oldest first
        self._total = 0
        self._leaves_at = 0  # when the oldest does

    def take(self, now: int, amount: int, meter: Meter) -> int:
        if now >= self._leaves_at:
            self._forget(now)
        if amount and self._total + amount > meter.limit:
            return -self._wait_us(now, amount, meter)
        part = now // self._part_us
        if amount:
            self._amounts[part] = self._amounts.get(part, 0) + amount
            self._total += amount
            if not self._leaves_at:
                self._forget(now)
        return part

    def add(self, now: int, amount: int, meter: Meter) -> int:
        part = now // self._part_us
        if amount:
            self._amounts[part] = self._amounts.get(part, 0) + amount
            self._total += amount
            self._forget(now)
        return part

    def replace(self, mark: int, reserved: int, amount: int) -> None:
        """What has left the window is not counted again."""
        if mark in self._amounts:
            self._amounts[mark] += amount - reserved
            self._total += amount - reserved

    settle = replace

    def standing(self, now: int, meter: Meter) -> Standing:
        self._forget(now)
        newest = next(reversed(self._amounts), None)
        reset = 0 if newest is None else (newest + 1 + BUCKETS) * self._part_us - now
        return max(meter.limit - self._total, 0), reset

    def is_idle(self, now: int) -> bool:
        self._forget(now)
        return not self._amounts

    def charges(self) -> Iterable[Charge]:
        return ((self._meter, part, amount) for part, amount in self._amounts.items())

    def _wait_us(self, now: int, amount: int, meter: Meter) -> int:
        if amount > meter.limit:
            return NEVER_US
        surplus = self._total + amount - meter.limit
        for part, taken in self._amounts.items():
            surplus -= taken
            if surplus <= 0:
                return (part + 1 + BUCKETS) * self._part_us - now
        raise AssertionError("the parts of a window add up to its total")

    def _forget(self, now: int) -> None:
        oldest, amounts = now // self._part_us - BUCKETS, self._amounts
        while amounts:
            part = next(iter(amounts))
            if part >= oldest:
                self._leaves_at = (part + 1 + BUCKETS) * self._part_us
                return
            self._total -= amounts.pop(part)
        self._leaves_at = 0


class Gauge:
    __slots__ = ("_running",)

    def __init__(self, meter: Meter) -> None:
        self._running = 0

    def take(self, now: int, amount: int, meter: Meter) -> int:
        if amount and self._running + amount > meter.limit:
            return -NEVER_US if amount > meter.limit else -GAUGE_WAIT_US
        self._running += amount
        return 0

    def add(self, now: int, amount: int, meter: Meter) -> int:
        self._running += amount
        return 0

    def replace(self, mark: int, reserved: int, amount: int) -> None:
        self._running += amount - reserved

    def settle(self, mark: int, reserved: int, amount: int) -> None:
        self._running -= reserved

    def standing(self, now: int, meter: Meter) -> Standing:
        return max(meter.limit - self._running, 0), 0

    def is_idle(self, now: int) -> bool:
        return not self._running

    def charges(self) -> Iterable[Charge]:
        return ()


class Period:
    """Used is settled; held is reserved by running requests."""

    __slots__ = ("_held", "_meter", "_used")

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self._used = meter.opening
        self._held = 0

    def take(self, now: int, amount: int, meter: Meter) -> int:
        if amount and self._used + self._held + amount > meter.limit:
            return -NEVER_US if amount > meter.limit else -max(meter.span_us - now, 1)
        self._held += amount
        return 0

    def add(self, now: int, amount: int, meter: Meter) -> int:
        self._held += amount
        return 0

    def replace(self, mark: int, reserved: int, amount: int) -> None:
        self._held += amount - reserved

    def settle(self, mark: int, reserved: int, amount: int) -> None:
        self._held -= reserved
        self._used += amount

    def standing(self, now: int, meter: Meter) -> Standing:
        left = max(meter.limit - self._used - self._held, 0)
        return left, max(meter.span_us - now, 0)

    def is_idle(self, now: int) -> bool:
        return now >= self._meter.span_us

    def charges(self) -> Iterable[Charge]:
        return ((self._meter, 0, self._used - self._meter.opening),)


STATES: dict[MeterKind, type[Rate] | type[Window] | type[Gauge] | type[Period]] = {
    MeterKind.RATE: Rate,
    MeterKind.WINDOW: Window,
    MeterKind.GAUGE: Gauge,
    MeterKind.PERIOD: Period,
}
