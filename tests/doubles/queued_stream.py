"""A stream of a FairQueue that records what it is told; and a clock that the test sets."""

from __future__ import annotations

from proxy.domain.errors import RateLimited
from proxy.domain.scheduling import Standing, Ticket
from proxy.scheduling.stream import Stream


class Clock:
    """Seconds."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class QueuedStream(Stream):
    """log: of all streams of a test, in the order in which they are told something."""

    __slots__ = ("error", "log", "standings", "waited", "was_preempted")

    def __init__(self, ticket: Ticket, log: list[tuple[str, QueuedStream]] | None = None) -> None:
        super().__init__(ticket)
        self.log = log
        self.waited = False
        self.error: RateLimited | None = None
        self.standings: list[Standing] = []
        self.was_preempted = False

    def granted(self) -> None:
        self._record("granted")

    def refused(self, error: RateLimited) -> None:
        self.error = error
        self._record("refused")

    def moved(self, standing: Standing) -> None:
        self.standings.append(standing)

    def preempted(self) -> None:
        assert not self.was_preempted
        self.was_preempted = True
        self._record("preempted")

    def _record(self, event: str) -> None:
        if self.log is not None:
            self.log.append((event, self))
