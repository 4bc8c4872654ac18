"""The state of one meter of each kind, in memory. Used by `in_process`.

`wait_us` is 0 where the amount fits. `take` returns (mark, remaining, reset_us). `replace` changes
a reserved amount, at its mark, to another; `settle` to what was used; `abandon` gives back what a
process held that died. Times are microseconds since 1970.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from triton_openai.proxy.ledger.port import BUCKETS, GAUGE_WAIT_US, NEVER_US, Meter, MeterKind

Standing = tuple[int, int, int]
Charge = tuple[Meter, int, int]  # meter, mark, amount


class MeterState(Protocol):
    def wait_us(self, now: int, amount: int, meter: Meter) -> int: ...

    def take(self, now: int, amount: int, meter: Meter) -> Standing: ...

    def replace(self, mark: int, reserved: int, amount: int) -> None: ...

    def settle(self, mark: int, reserved: int, amount: int) -> None: ...

    def abandon(self, reserved: int) -> None: ...

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

    def wait_us(self, now: int, amount: int, meter: Meter) -> int:
        if amount > meter.limit:
            return NEVER_US
        most = now + meter.limit * meter.span_us
        full_at = min(max(self._full_at, now), most)  # limits and clocks may have changed
        return max(full_at + amount * meter.span_us - most, 0) if amount else 0

    def take(self, now: int, amount: int, meter: Meter) -> Standing:
        interval = self._interval_us = meter.span_us
        most = meter.limit * interval
        full_at = min(max(self._full_at, now), now + most) + amount * interval
        if amount:
            self._full_at = full_at
        ahead = full_at - now
        return full_at, (most - ahead) // interval, ahead

    def replace(self, mark: int, reserved: int, amount: int) -> None:
        if self._full_at == mark:
            self._full_at += (amount - reserved) * self._interval_us

    settle = replace

    def abandon(self, reserved: int) -> None:
        """The requests were made."""

    def is_idle(self, now: int) -> bool:
        return self._full_at <= now

    def charges(self) -> Iterable[Charge]:
        return ()


class Window:
    """Amounts by the 128th of the window in which they were taken, which is their mark."""

    __slots__ = ("_amounts", "_meter", "_part_us", "_total")

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self._part_us = meter.span_us // BUCKETS
        self._amounts: dict[int, int] = {}  # the oldest first
        self._total = 0

    def wait_us(self, now: int, amount: int, meter: Meter) -> int:
        if self._amounts:
            self._forget(now)
        surplus = self._total + amount - meter.limit
        if surplus <= 0 or not amount:
            return 0
        if amount > meter.limit:
            return NEVER_US
        for part, taken in self._amounts.items():
            surplus -= taken
            if surplus <= 0:
                return (part + 1 + BUCKETS) * self._part_us - now
        raise AssertionError("the parts of a window add up to its total")

    def take(self, now: int, amount: int, meter: Meter) -> Standing:
        """Called after `wait_us` of the same time."""
        amounts, part = self._amounts, now // self._part_us
        if amount:
            amounts[part] = amounts.get(part, 0) + amount
            self._total += amount
        newest = next(reversed(amounts), None)
        reset = 0 if newest is None else (newest + 1 + BUCKETS) * self._part_us - now
        return part, max(meter.limit - self._total, 0), reset

    def replace(self, mark: int, reserved: int, amount: int) -> None:
        """What has left the window is not counted again."""
        if mark in self._amounts:
            self._amounts[mark] += amount - reserved
            self._total += amount - reserved

    settle = replace

    def abandon(self, reserved: int) -> None:
        """How much of it was used, nobody knows: it stays until it leaves the window."""

    def is_idle(self, now: int) -> bool:
        self._forget(now)
        return not self._amounts

    def charges(self) -> Iterable[Charge]:
        return ((self._meter, part, amount) for part, amount in self._amounts.items())

    def _forget(self, now: int) -> None:
        oldest = now // self._part_us - BUCKETS
        while self._amounts and (part := next(iter(self._amounts))) < oldest:
            self._total -= self._amounts.pop(part)


class Gauge:
    __slots__ = ("_running",)

    def __init__(self, meter: Meter) -> None:
        self._running = 0

    def wait_us(self, now: int, amount: int, meter: Meter) -> int:
        if not amount or self._running + amount <= meter.limit:
            return 0
        return NEVER_US if amount > meter.limit else GAUGE_WAIT_US

    def take(self, now: int, amount: int, meter: Meter) -> Standing:
        self._running += amount
        return 0, max(meter.limit - self._running, 0), 0

    def replace(self, mark: int, reserved: int, amount: int) -> None:
        self._running += amount - reserved

    def settle(self, mark: int, reserved: int, amount: int) -> None:
        self._running -= reserved

    def abandon(self, reserved: int) -> None:
        self._running -= reserved

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

    def wait_us(self, now: int, amount: int, meter: Meter) -> int:
        if not amount or self._used + self._held + amount <= meter.limit:
            return 0
        return NEVER_US if amount > meter.limit else max(meter.span_us - now, 1)

    def take(self, now: int, amount: int, meter: Meter) -> Standing:
        self._held += amount
        left = max(meter.limit - self._used - self._held, 0)
        return 0, left, max(meter.span_us - now, 0)

    def replace(self, mark: int, reserved: int, amount: int) -> None:
        self._held += amount - reserved

    def settle(self, mark: int, reserved: int, amount: int) -> None:
        self._held -= reserved
        self._used += amount

    def abandon(self, reserved: int) -> None:
        self._held -= reserved

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
