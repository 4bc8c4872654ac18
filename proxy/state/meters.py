"""The meters of callers' limits: the port to their live state, and its values. Times are in us.

A request reserves an amount of each of its meters, all or nothing, corrects the amounts when more
is known, and settles them at its end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Protocol

from typing_extensions import Self

NEVER_US = 1 << 52  # the wait for an amount that is larger than its limit
GAUGE_WAIT_US = 1_000_000  # nobody knows when a running request will end
BUCKETS = 128  # of a window: it ends up to a 128th later than it must, and never earlier


class MeterKind(IntEnum):
    """RATE: requests by GCRA. WINDOW: amounts of the last minute or day, at any time. GAUGE: what
    runs now. PERIOD: amounts of a calendar month.
    """

    RATE = 0
    WINDOW = 1
    GAUGE = 2
    PERIOD = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Meter:
    """One limit of one tenant, key, or tenant's model.

    name: for callers, such as `key.requests_per_minute`. tenant: the ledger may keep the meters of
    one tenant together. key: of the state, unique. limit: the most, in the unit of the amounts;
    of a RATE the requests that may come at once. span_us: of a RATE between two requests, of a
    WINDOW its length, of a PERIOD its end since 1970. opening: what a PERIOD has used already when
    the ledger sees it for the first time.
    """

    name: str
    tenant: str
    key: str
    kind: MeterKind
    limit: int
    span_us: int = 0
    opening: int = 0


Standing = tuple[int, int]  # what is left, and in how many us all of it will be there again
Look = Callable[[int], Standing]  # at the meter with this index; computed when a header needs it


@dataclass(slots=True)
class Grant:
    """What a request holds. amounts: one for each meter. marks: where they were counted."""

    meters: Sequence[Meter]
    amounts: Sequence[int]
    look: Look
    marks: Sequence[int] = ()
    is_settled: bool = False


@dataclass(frozen=True, slots=True)
class Refusal:
    """Nothing was reserved. at: the index of the meter with the longest wait. wait_us: after it
    the same amounts fit, if nobody else takes them; NEVER_US if they never do.
    """

    meters: Sequence[Meter]
    at: int
    wait_us: int
    look: Look

    @property
    def meter(self) -> Meter:
        return self.meters[self.at]


class OutageMode(str, Enum):
    """What is granted while Redis cannot be reached. SHARE: each proxy's part of every limit.
    CLOSED: nothing. OPEN: everything.
    """

    SHARE = "share"
    CLOSED = "closed"
    OPEN = "open"


class LedgerUnavailable(Exception):
    """The state cannot be reached, or is full. The message is for the log."""


class Ledger(Protocol):
    """Entered before the first request, left after the last.

    `amend` and `settle` never wait and never fail: they are called while a request is cancelled.
    """

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, *exc_info: object) -> None: ...

    @property
    def outage(self) -> str | None:
        """What is done while the shared state cannot be reached; None while it can."""
        ...

    @property
    def proxies(self) -> int:
        """Proxies that were last seen to share the state, this one included; 1 without Redis."""
        ...

    async def reserve(self, meters: Sequence[Meter], amounts: Sequence[int]) -> Grant | Refusal:
        """Takes all amounts, or none. Amounts of zero only read.

        Raises:
            LedgerUnavailable: nobody can say whether the limits hold.
        """
        ...

    def amend(self, grant: Grant, amounts: Sequence[int]) -> None:
        """Replaces the reserved amounts, while the request runs."""
        ...

    def settle(self, grant: Grant, amounts: Sequence[int]) -> None:
        """Replaces the reserved amounts by those that were used; of gauges all is given back."""
        ...
