"""The timers of a process's queues: one for deadlines, one for positions."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import islice

from proxy.scheduling.fair_queue import Clock
from proxy.scheduling.fair_queues import FairQueues

STANDINGS_S = 1.0
STANDINGS_AT_ONCE = 200  # of some 5 us each
SOON_S = 0.001


class Timekeeper:
    def __init__(self, queues: FairQueues, clock: Clock) -> None:
        self._queues = queues
        self._clock = clock
        self._due: asyncio.TimerHandle | None = None
        self._due_at = 0.0
        self._standings: asyncio.Handle | None = None

    def watch(self) -> None:
        """To be called when a stream has begun to wait."""
        deadline = self._queues.deadline()
        if deadline is not None and (self._due is None or deadline < self._due_at):
            self._set_due(deadline)
        if self._standings is None:
            loop = asyncio.get_running_loop()
            self._standings = loop.call_later(STANDINGS_S, self._begin_standings)

    def stop(self) -> None:
        for timer in (self._due, self._standings):
            if timer is not None:
                timer.cancel()
        self._due = self._standings = None

    def _set_due(self, deadline: float) -> None:
        if self._due is not None:
            self._due.cancel()
        wait_s = max(deadline - self._clock(), SOON_S)
        self._due = asyncio.get_running_loop().call_later(wait_s, self._expire)
        self._due_at = deadline

    def _expire(self) -> None:
        self._due = None
        self._queues.expire()
        if (deadline := self._queues.deadline()) is not None:
            self._set_due(deadline)

    def _begin_standings(self) -> None:
        self._go_on(self._queues.standings())

    def _go_on(self, standings: Iterator[None]) -> None:
        """Other work on the event loop comes between two parts of one pass."""
        steps = sum(1 for _ in islice(standings, STANDINGS_AT_ONCE))
        loop = asyncio.get_running_loop()
        if steps == STANDINGS_AT_ONCE:
            self._standings = loop.call_soon(self._go_on, standings)
        elif self._queues.waiting:
            self._standings = loop.call_later(STANDINGS_S, self._begin_standings)
        else:
            self._standings = None
