"""The fair queues of this proxy. Implements domain.scheduling.Scheduler."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Sequence

from typing_extensions import Self

from proxy.domain.errors import RateLimited
from proxy.domain.scheduling import QueueState, Standing, Ticket
from proxy.scheduling.fair_queue import FairQueue
from proxy.scheduling.fair_queues import FairQueues
from proxy.scheduling.limits import QueueLimits
from proxy.scheduling.meters import Meters
from proxy.scheduling.stream import State, Stream
from proxy.scheduling.timekeeper import Timekeeper

LEAST_WEIGHT, MOST_WEIGHT = 1e-6, 1e6


class InProcessScheduler:
    """limits: of each queue. clock: seconds that never go back."""

    def __init__(self, limits: QueueLimits, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._queues = FairQueues(limits, clock)
        self._timekeeper = Timekeeper(self._queues, clock)
        self._meters: Meters[LocalPermit] = Meters(self._charge)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self._timekeeper.stop()
        self._meters.stop()

    async def acquire(
        self,
        ticket: Ticket,
        *,
        moved: Callable[[Standing], None],
        preempted: Callable[[], None],
    ) -> LocalPermit:
        _check(ticket)
        permit = LocalPermit(ticket, moved, preempted, self._meters)
        queue = permit.queue = self._queues.enter(permit)
        if permit.state is State.WAITING:
            self._timekeeper.watch()
            try:
                await permit.turn()
            except asyncio.CancelledError:
                queue.leave(permit)
                raise
        return permit

    def set_capacity(self, queue: str, streams: int | None, *, spare: int = 0) -> None:
        self._queues[queue].set_capacity(streams, spare)

    def _charge(self, permits: Sequence[LocalPermit]) -> None:
        for permit in permits:
            permit.read()
        self._queues.rearrange()

    def states(self, *, tenants: int = 0) -> tuple[QueueState, ...]:
        return self._queues.states(tenants)


class LocalPermit(Stream):
    """Implements domain.scheduling.Permit."""

    __slots__ = ("_before", "_meters", "_moved", "_preempted", "_tokens", "_turn", "queue")

    queue: FairQueue

    def __init__(
        self,
        ticket: Ticket,
        moved: Callable[[Standing], None],
        preempted: Callable[[], None],
        meters: Meters[LocalPermit],
    ) -> None:
        super().__init__(ticket)
        self._moved = moved
        self._preempted = preempted
        self._meters = meters
        self._turn: asyncio.Future[None] | None = None
        self._tokens: Callable[[], int] | None = None
        self._before = 0

    async def turn(self) -> None:
        """Returns when it may run. Raises RateLimited."""
        if self.state is State.WAITING:
            turn = self._turn = asyncio.get_running_loop().create_future()
            try:
                await turn
            except asyncio.CancelledError:
                if turn.done() and not turn.cancelled():
                    turn.exception()  # a refusal in the same turn of the event loop
                raise

    def see_prompt(self, uncached_tokens: int) -> None:
        if self.state is State.RUNNING:
            self.queue.see_prompt(self, uncached_tokens)

    def meter(self, tokens: Callable[[], int]) -> None:
        """What the stream has generated already was charged with another permit."""
        if self.state is State.RUNNING:
            self._tokens = tokens
            self._before = tokens() - self.tokens
            self._meters.add(self)

    def generated(self) -> int:
        return self.tokens if self._tokens is None else self._tokens() - self._before

    def read(self) -> None:
        if self._tokens is not None and self.state is State.RUNNING:
            self.queue.charge(self, self.generated())

    def release(self) -> None:
        if self.state is State.RUNNING:
            self.read()
            self._meters.remove(self)
            self.queue.release(self)

    def granted(self) -> None:
        if self._turn is not None and not self._turn.done():
            self._turn.set_result(None)

    def refused(self, error: RateLimited) -> None:
        if self._turn is not None and not self._turn.done():
            self._turn.set_exception(error)

    def moved(self, standing: Standing) -> None:
        asyncio.get_running_loop().call_soon(self._tell, standing)

    def preempted(self) -> None:
        asyncio.get_running_loop().call_soon(self._tell_preempted)

    def _tell(self, standing: Standing) -> None:
        if self.state is State.WAITING:
            self._moved(standing)

    def _tell_preempted(self) -> None:
        if self.state is State.RUNNING:
            self._preempted()


def _check(ticket: Ticket) -> None:
    """Raises ValueError for a patience that is no number, and for a weight with which counters
    lose their precision.
    """
    if not LEAST_WEIGHT <= ticket.weight <= MOST_WEIGHT:
        raise ValueError(
            f"the weight of tenant {ticket.tenant!r} is {ticket.weight}: it must be from "
            f"{LEAST_WEIGHT:g} to {MOST_WEIGHT:g}"
        )
    if ticket.patience_s is not None and math.isnan(ticket.patience_s):
        raise ValueError("patience_s is not a number")
