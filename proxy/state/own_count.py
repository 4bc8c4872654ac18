"""What one proxy holds and has granted, apart from Redis. Used by `redis_meters`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from proxy.state.memory_meters import Clock, InProcessLedger
from proxy.state.meters import (
    BUCKETS,
    Grant,
    LedgerUnavailable,
    Meter,
    MeterKind,
    OutageMode,
    Refusal,
)

Change = tuple[Meter, int, int, int]  # meter, mark, reserved, amount


@dataclass(slots=True)
class SharedGrant(Grant):
    """own: the same in this proxy's own count."""

    own: Grant | None = None


class OwnCount:
    """Everything that this proxy granted, with the shared state or without it.

    _touched: gauges and periods that running requests hold, or held since `forget_returned`.
    _unsent: charges, by meter and mark, that the shared state has not got yet.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ledger = InProcessLedger(clock)
        self._unsent: Counter[tuple[Meter, int]] = Counter()
        self._touched: dict[str, Meter] = {}
        self.version = 0  # grows with each change of what is held or unsent

    def holdings(self) -> list[Change]:
        """What is held now, and zero of what was held since `forget_returned`."""
        return [(meter, 0, 0, self._ledger.held(meter)) for meter in self._touched.values()]

    def forget_returned(self) -> None:
        self._touched = {meter.key: meter for meter, *_, held in self.holdings() if held}

    def record(self, grant: Grant) -> SharedGrant:
        """Of a grant by the shared state."""
        own = self._ledger.record(grant.meters, grant.amounts)
        self._touch(grant.meters, grant.amounts)
        return SharedGrant(grant.meters, grant.amounts, grant.look, grant.marks, own=own)

    def reserve(
        self, mode: OutageMode, proxies: int, meters: Sequence[Meter], amounts: Sequence[int]
    ) -> Grant | Refusal:
        """Without the shared state. proxies: those last seen alive.

        Raises:
            LedgerUnavailable: the mode is CLOSED.
        """
        match mode:
            case OutageMode.CLOSED:
                raise LedgerUnavailable("the shared limits cannot be reached")
            case OutageMode.OPEN:
                own: Grant | Refusal = self._ledger.record(meters, amounts)
            case OutageMode.SHARE:
                own = self._ledger.take([shared(meter, proxies) for meter in meters], amounts)
        if isinstance(own, Refusal):
            return own
        self._touch(meters, amounts)
        self.keep("reserve", zip(meters, own.marks, [0] * len(meters), amounts, strict=True))
        return SharedGrant(meters, amounts, own.look, own.marks, own=own)

    def change(self, operation: str, grant: SharedGrant, amounts: Sequence[int]) -> list[Change]:
        """Amends or settles; returns what changes in the shared state."""
        assert grant.own is not None  # it was granted here
        changes = [
            change
            for change in zip(grant.meters, grant.marks, grant.amounts, amounts, strict=True)
            if change[2] or change[3]
        ]
        if operation == "settle":
            self._ledger.settle(grant.own, amounts)
            grant.is_settled = True
        else:
            self._ledger.amend(grant.own, amounts)
        self._touch(grant.meters, amounts)
        grant.amounts = amounts
        return changes

    def _touch(self, meters: Sequence[Meter], amounts: Sequence[int]) -> None:
        self.version += 1
        for meter, amount in zip(meters, amounts, strict=True):
            if amount and meter.kind >= MeterKind.GAUGE:
                self._touched[meter.key] = meter

    def keep(self, operation: str, changes: Iterable[Change]) -> None:
        """For the time when the shared state takes them. `add`: what `take_unsent` returned."""
        self.version += 1
        for meter, mark, reserved, amount in changes:
            if meter.kind is MeterKind.WINDOW:
                self._unsent[meter, mark] += amount - reserved
            elif meter.kind is MeterKind.PERIOD and operation in ("settle", "add"):
                self._unsent[meter, 0] += amount

    def has_unsent(self, changes: Iterable[Change]) -> bool:
        """Whether the shared state lacks something that these changes are about."""
        return bool(self._unsent) and any(change[:2] in self._unsent for change in changes)

    def take_unsent(self) -> list[Change]:
        """Charges to add to a shared state that was only out of reach."""
        now = self._clock()
        unsent, self._unsent = self._unsent, Counter()
        return [
            (meter, mark, 0, amount)
            for (meter, mark), amount in unsent.items()
            if amount and not _is_past(meter, mark, now)
        ]

    def take_all(self) -> list[Change]:
        """Charges to add to a shared state that was lost: all that this proxy has granted."""
        self._unsent.clear()
        return [(meter, mark, 0, amount) for meter, mark, amount in self._ledger.charges()]


def shared(meter: Meter, proxies: int) -> Meter:
    """One proxy's part of a limit. A rate keeps a burst of one, else nothing could pass."""
    if meter.kind is MeterKind.RATE:
        burst = max(meter.limit // proxies, 1)
        return replace(meter, limit=burst, span_us=meter.span_us * proxies)
    return replace(meter, limit=meter.limit // proxies)


def _is_past(meter: Meter, mark: int, now: int) -> bool:
    """Whether the mark has left its window; with a second one for clocks that differ."""
    return meter.kind is MeterKind.WINDOW and mark < now // (meter.span_us // BUCKETS) - 2 * BUCKETS
