"""What is granted while the shared state cannot be reached. Used by `redis_ledger`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from enum import Enum

from proxy.ledger.in_process import InProcessLedger
from proxy.ledger.port import Grant, LedgerUnavailable, Meter, MeterKind, Refusal


class OutageMode(str, Enum):
    """SHARE: each proxy grants its part of every limit. CLOSED: nothing is granted. OPEN:
    everything is.
    """

    SHARE = "share"
    CLOSED = "closed"
    OPEN = "open"


def granted(
    mode: OutageMode,
    own: InProcessLedger,
    proxies: int,
    meters: Sequence[Meter],
    amounts: Sequence[int],
) -> Grant | Refusal:
    """own: what this proxy has granted, before the outage too. proxies: those last seen alive.

    Raises:
        LedgerUnavailable: the mode is CLOSED.
    """
    match mode:
        case OutageMode.CLOSED:
            raise LedgerUnavailable("the shared limits cannot be reached")
        case OutageMode.OPEN:
            return own.record(meters, amounts)
        case OutageMode.SHARE:
            return own.take([shared(meter, proxies) for meter in meters], amounts)


def shared(meter: Meter, proxies: int) -> Meter:
    """One proxy's part of a limit. A rate keeps a burst of one, else nothing could pass."""
    if meter.kind is MeterKind.RATE:
        burst = max(meter.limit // proxies, 1)
        return replace(meter, limit=burst, span_us=meter.span_us * proxies)
    return replace(meter, limit=meter.limit // proxies)
