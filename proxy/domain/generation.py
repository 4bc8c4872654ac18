"""An answer while it is made, and how its caller takes it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from proxy.domain.events import Events
from proxy.domain.record import RequestRecord


class Delivery(Enum):
    """LIVE: events reach the caller as they come, so that none can be taken back. HELD: the caller
    gets the whole answer at its end.
    """

    LIVE = "live"
    HELD = "held"


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """An answer while it is made. Closing the events ends the generation in the engine."""

    events: Events
    record: RequestRecord
