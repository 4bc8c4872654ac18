"""What a ledger must do, in the simplest way: lists of everything that was ever reserved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from proxy.state.meters import (
    BUCKETS,
    GAUGE_WAIT_US,
    NEVER_US,
    Meter,
    MeterKind,
)


@dataclass
class Entry:
    at: int
    amount: int
    is_running: bool = True


@dataclass
class ReferenceLedger:
    """entries: by a meter's key, in order of time. now: microseconds."""

    now: int = 0
    entries: dict[str, list[Entry]] = field(default_factory=dict)

    def wait_us(self, meter: Meter, amount: int) -> int:
        if amount == 0:
            return 0
        if amount > meter.limit:
            return NEVER_US
        entries = self.entries.get(meter.key, [])
        match meter.kind:
            case MeterKind.RATE:
                return max(
                    self._full_at(entries, meter) + amount * meter.span_us - self._most(meter), 0
                )
            case MeterKind.WINDOW:
                live = [(self._leaves_at(one, meter), one.amount) for one in entries]
                live = sorted(pair for pair in live if pair[0] > self.now)
                surplus = sum(amount for _, amount in live) + amount - meter.limit
                for leaves_at, taken in [(self.now, 0), *live]:
                    surplus -= taken
                    if surplus <= 0:
                        return leaves_at - self.now
                raise AssertionError
            case MeterKind.GAUGE:
                running = sum(one.amount for one in entries if one.is_running)
                return GAUGE_WAIT_US if running + amount > meter.limit else 0
            case MeterKind.PERIOD:
                used = meter.opening + sum(one.amount for one in entries)
                return meter.span_us - self.now if used + amount > meter.limit else 0

    def reserve(self, meters: Sequence[Meter], amounts: Sequence[int]) -> tuple[int, list[Entry]]:
        """(the longest wait, what was reserved)."""
        wait = max(map(self.wait_us, meters, amounts))
        if wait:
            return wait, []
        made = []
        for meter, amount in zip(meters, amounts, strict=True):
            made.append(Entry(self.now, amount))
            self.entries.setdefault(meter.key, []).append(made[-1])
        return 0, made

    def replace(
        self, meters: Sequence[Meter], made: list[Entry], amounts: Sequence[int], *, is_end: bool
    ) -> None:
        """Of a rate only the last request can be given back, and only once."""
        for meter, entry, amount in zip(meters, made, amounts, strict=True):
            if meter.kind is not MeterKind.RATE:
                entry.amount, entry.is_running = amount, not is_end
            elif amount < entry.amount and entry is self.entries[meter.key][-1]:
                self.entries[meter.key].pop()

    def _most(self, meter: Meter) -> int:
        return self.now + meter.limit * meter.span_us

    def _full_at(self, entries: list[Entry], meter: Meter) -> int:
        full_at = 0
        for one in entries:
            full_at = max(full_at, one.at) + one.amount * meter.span_us
        return max(full_at, self.now)

    @staticmethod
    def _leaves_at(entry: Entry, meter: Meter) -> int:
        part = meter.span_us // BUCKETS
        return (entry.at // part + 1) * part + meter.span_us
