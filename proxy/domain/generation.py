"""How a caller takes an answer, and what the service reports about one besides its events."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from proxy.domain.events import Events
from proxy.domain.lifecycle import NO_END, Lifecycle
from proxy.domain.output import FinishReason, Usage
from proxy.domain.scheduling import Standing


class Delivery(Enum):
    """LIVE: events reach the caller as they come, so that none can be taken back. HELD: the caller
    gets the whole answer at its end.
    """

    LIVE = "live"
    HELD = "held"


class TokenCount(Protocol):
    """Counts the tokens of one engine stream while they arrive."""

    @property
    def usage(self) -> Usage: ...


@dataclass(frozen=True, slots=True)
class Wait:
    """One engine stream that waits in the fair queue. Times are the event loop's."""

    standing: Standing
    since: float
    standing_at: float  # when the standing was computed

    @property
    def whole_s(self) -> float:
        """How long it will probably have waited in all."""
        return self.standing_at - self.since + (self.standing.wait_s or 0.0)


@dataclass(slots=True, kw_only=True)
class Report:
    """One for each request; the service fills it in while the answer is made.

    unenforced: keywords of the caller's schema that nothing enforces on the answer. attempts: the
    most that one choice took; None where no answer is checked. counts: one for each engine stream
    of the request, of every choice, attempt and round of tools. first_event_s: from the start to
    the first event. finish: of the choice that ended last. lifecycle: of the model.
    fallback_from: see GenerationRequest. resends: streams and trials of guides that were sent again
    because Triton was lost before it answered. continued: how often another engine stream continued
    one that had its first token; preempted: how many of these gave their row to a higher class.
    waits: the streams that wait in the fair queue now, by their reader. queue_s: what the
    stream that waited longest has waited in all, None if none waited. capped_priority: the caller's
    ceiling, where it asked for more. notes: comments for a streamed answer; whoever sends them
    removes them.
    """

    unenforced: tuple[str, ...] = ()
    attempts: int | None = None
    counts: list[TokenCount] = field(default_factory=list)
    first_event_s: float | None = None
    finish: FinishReason | None = None
    lifecycle: Lifecycle = NO_END
    fallback_from: str | None = None
    resends: int = 0
    continued: int = 0
    preempted: int = 0
    waits: dict[object, Wait] = field(default_factory=dict)
    queue_s: float | None = None
    capped_priority: int | None = None
    notes: list[str] = field(default_factory=list)

    @property
    def queued(self) -> Standing | None:
        """The best position of its streams that wait; None where none waits."""
        standings = (wait.standing for wait in self.waits.values())
        return min(standings, key=lambda standing: standing.position, default=None)

    @property
    def queued_since(self) -> float | None:
        """When the one that waits longest began to wait."""
        return min((wait.since for wait in self.waits.values()), default=None)

    @property
    def expected_wait_s(self) -> float:
        """The longest that one of its streams will probably have waited."""
        return max((wait.whole_s for wait in self.waits.values()), default=0.0)

    @property
    def usage(self) -> Usage | None:
        """The tokens that all engine streams have sent so far; None before the first one."""
        usage = sum((count.usage for count in self.counts), start=Usage())
        return usage if usage.total_tokens else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """An answer while it is made. Closing the events ends the generation in the engine."""

    events: Events
    report: Report
