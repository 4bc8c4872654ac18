"""A scheduler whose waits, refusals, preemptions and queues are counted."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from enum import Enum
from typing import Protocol

from typing_extensions import Self

from proxy import background
from proxy.domain.errors import RateLimited
from proxy.domain.scheduling import Permit, QueueState, Scheduler, Standing, Ticket

COUNT_EVERY_S = 1.0


class Refusal(str, Enum):
    """Why a stream got 429. FULL: no place. NO_WAIT: it does not wait. TIMEOUT: it waited as long
    as it may. DISPLACED: it waited, and a tenant with fewer streams took its place.
    """

    FULL = "full"
    NO_WAIT = "no_wait"
    TIMEOUT = "timeout"
    DISPLACED = "displaced"


class QueueCounter(Protocol):
    """The port to telemetry."""

    def waited(self, queue: str, seconds: float) -> None: ...

    def refused(self, queue: str, reason: str, seconds: float) -> None:
        """reason: the value of a Refusal."""
        ...

    def preempted(self, queue: str) -> None: ...

    def counted(self, states: Iterable[QueueState]) -> None:
        """All queues. Called about once a second."""
        ...


class ObservedScheduler:
    """longest_wait_s: of a stream that names no patience, and of every other."""

    def __init__(
        self,
        scheduler: Scheduler,
        counter: QueueCounter,
        *,
        longest_wait_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._scheduler = scheduler
        self._counter = counter
        self._longest_wait_s = longest_wait_s
        self._clock = clock
        self._tasks: list[asyncio.Task[None]] = []
        self.set_capacity = scheduler.set_capacity
        self.states = scheduler.states

    async def __aenter__(self) -> Self:
        await self._scheduler.__aenter__()
        self._tasks = [asyncio.create_task(self._keep_counting())]
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await background.end(self._tasks)
        await self._scheduler.__aexit__(*exc_info)

    async def acquire(
        self,
        ticket: Ticket,
        *,
        moved: Callable[[Standing], None],
        preempted: Callable[[], None],
    ) -> Permit:
        def count_and_stop() -> None:
            self._counter.preempted(ticket.queue)
            preempted()

        began_s = self._clock()
        try:
            permit = await self._scheduler.acquire(ticket, moved=moved, preempted=count_and_stop)
        except RateLimited:
            waited_s = self._clock() - began_s
            reason = self._reason(ticket, waited_s)
            self._counter.refused(ticket.queue, reason.value, waited_s)
            raise
        self._counter.waited(ticket.queue, self._clock() - began_s)
        return permit

    def _reason(self, ticket: Ticket, waited_s: float) -> Refusal:
        patience_s = ticket.patience_s
        if patience_s == 0:
            return Refusal.NO_WAIT
        if waited_s < 0.001:  # it was refused when it came
            return Refusal.FULL
        longest_s = self._longest_wait_s if patience_s is None else patience_s
        is_over = waited_s >= min(longest_s, self._longest_wait_s)
        return Refusal.TIMEOUT if is_over else Refusal.DISPLACED

    async def _keep_counting(self) -> None:
        while True:
            self._counter.counted(self._scheduler.states())
            await asyncio.sleep(COUNT_EVERY_S)
