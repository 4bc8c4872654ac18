"""What one proxy holds and has granted, apart from the shared state. Used by `redis_ledger`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from proxy.ledger.in_process import Clock, InProcessLedger
from proxy.ledger.outage import OutageMode, granted
from proxy.ledger.port import Grant, Meter, MeterKind, Refusal

Change = tuple[Meter, int, int, int]  # meter, mark, reserved, amount
HELD = frozenset((MeterKind.GAUGE, MeterKind.PERIOD))


@dataclass(slots=True)
class SharedGrant(Grant):
    """own: the same in this proxy's own count."""

    own: Grant | None = None


class OwnCount:
    """Everything that this proxy granted, with the shared state or without it.

    _held: of gauges and periods, by running requests and by calls that are under way. _unsent:
    charges, by meter and mark, that the shared state has not got yet.
    """

    def __init__(self, clock: Clock) -> None:
        self._ledger = InProcessLedger(clock)
        self._unsent: Counter[tuple[Meter, int]] = Counter()
        self._held: dict[str, tuple[Meter, int]] = {}
        self.version = 0  # grows with each change of what is held or unsent

    def hold(self, meters: Sequence[Meter], amounts: Sequence[int], sign: int = 1) -> None:
        self.version += 1
        for meter, amount in zip(meters, amounts, strict=True):
            if amount and meter.kind in HELD:
                _, before = self._held.get(meter.key, (meter, 0))
                self._held[meter.key] = meter, before + sign * amount

    def holdings(self) -> list[tuple[Meter, int]]:
        """What is held now, and zero of what was held since `forget_returned`."""
        return list(self._held.values())

    def forget_returned(self) -> None:
        self._held = {key: pair for key, pair in self._held.items() if pair[1]}

    def record(self, grant: Grant) -> SharedGrant:
        """Of a grant by the shared state, which is held already."""
        own = self._ledger.record(grant.meters, grant.amounts)
        return SharedGrant(grant.meters, grant.amounts, grant.look, grant.marks, own=own)

    def reserve(
        self, mode: OutageMode, proxies: int, meters: Sequence[Meter], amounts: Sequence[int]
    ) -> Grant | Refusal:
        """Without the shared state. Raises as `outage.granted`."""
        own = granted(mode, self._ledger, proxies, meters, amounts)
        if isinstance(own, Refusal):
            return own
        self.hold(meters, amounts)
        grant = SharedGrant(meters, amounts, own.look, own.marks, is_local=True, own=own)
        self.keep("reserve", zip(meters, own.marks, [0] * len(meters), amounts, strict=True))
        return grant

    def change(self, operation: str, grant: SharedGrant, amounts: Sequence[int]) -> list[Change]:
        """Amends or settles; returns what changes in the shared state."""
        assert grant.own is not None  # it was granted here
        changes = [
            change
            for change in zip(grant.meters, grant.marks, grant.amounts, amounts, strict=True)
            if change[2] or change[3]
        ]
        self.hold(grant.meters, grant.amounts, -1)
        if operation == "settle":
            self._ledger.settle(grant.own, amounts)
            grant.is_settled = True
        else:
            self._ledger.amend(grant.own, amounts)
            self.hold(grant.meters, amounts)
        grant.amounts = amounts
        return changes

    def keep(self, operation: str, changes: Iterable[Change]) -> None:
        """For the time when the shared state is back."""
        self.version += 1
        for meter, mark, reserved, amount in changes:
            if meter.kind is MeterKind.WINDOW:
                self._unsent[meter, mark] += amount - reserved
            elif meter.kind is MeterKind.PERIOD and operation == "settle":
                self._unsent[meter, 0] += amount

    def take_unsent(self) -> list[Change]:
        """Charges to add to a shared state that was only out of reach."""
        unsent, self._unsent = self._unsent, Counter()
        return [(meter, mark, 0, amount) for (meter, mark), amount in unsent.items() if amount]

    def take_all(self) -> list[Change]:
        """Charges to add to a shared state that was lost: all that this proxy has granted."""
        self._unsent.clear()
        return [(meter, mark, 0, amount) for meter, mark, amount in self._ledger.charges()]
