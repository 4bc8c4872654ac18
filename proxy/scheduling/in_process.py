"""The fair queues of this proxy. Implements domain.scheduling.Scheduler."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Iterable
from itertools import count
from typing import Protocol

from typing_extensions import Self

from proxy import background
from proxy.domain.errors import RateLimited
from proxy.domain.scheduling import QueueState, Standing, Ticket
from proxy.scheduling.fair_queue import FairQueue, RefusedByQueue
from proxy.scheduling.stream import State, Stream
from proxy.settings.streams import Scheduling

READ_S = 0.25
READS_A_REPORT = 4  # positions are sent, and queues counted, once a second
READ_AT_ONCE = 500
STANDINGS_AT_ONCE = 200  # of some 5 us each
LEAST_WEIGHT, MOST_WEIGHT = 1e-6, 1e6


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


class InProcessScheduler:
    """One queue for each model of each pool. clock: seconds that never go back."""

    def __init__(
        self,
        settings: Scheduling,
        counter: QueueCounter,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._counter = counter
        self.clock = clock
        self._queues: dict[str, FairQueue] = {}
        self._metered: dict[LocalPermit, None] = {}
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        self._tasks = [asyncio.create_task(self._keep_time())]
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await background.end(self._tasks)

    async def acquire(
        self,
        ticket: Ticket,
        *,
        moved: Callable[[Standing], None],
        preempted: Callable[[], None],
    ) -> LocalPermit:
        _check(ticket)
        queue = self._queue(ticket.queue)
        permit = LocalPermit(ticket, queue, self, moved, preempted)
        began_s = self.clock()
        try:
            queue.enter(permit)
            if permit.state is State.WAITING:
                await permit.turn()
        except RefusedByQueue as error:
            self._counter.refused(ticket.queue, error.reason.value, self.clock() - began_s)
            raise
        except asyncio.CancelledError:
            queue.leave(permit)
            raise
        self._counter.waited(ticket.queue, self.clock() - began_s)
        return permit

    def set_capacity(self, queue: str, streams: int | None, *, spare: int = 0) -> None:
        self._queue(queue).set_capacity(streams, spare)

    def states(self, *, tenants: int = 0) -> tuple[QueueState, ...]:
        return tuple(
            queue.state(name, tenants)
            for name, queue in sorted(self._queues.items())
            if queue.capacity is not None or queue.running or queue.waiting
        )

    def add_meter(self, permit: LocalPermit) -> None:
        self._metered[permit] = None

    def remove_meter(self, permit: LocalPermit) -> None:
        self._metered.pop(permit, None)

    def count_preemption(self, queue: str) -> None:
        self._counter.preempted(queue)

    def _queue(self, name: str) -> FairQueue:
        """A queue that was never named has no bound. There are as many as models in pools."""
        queue = self._queues.get(name)
        if queue is None:
            queue = self._queues[name] = FairQueue(self._settings, self.clock)
        return queue

    async def _keep_time(self) -> None:
        """Charges streams while they run, lets queues take rows over, and reports."""
        for number in count():
            if number % READS_A_REPORT == 0:
                self._counter.counted(self.states())
                await self._report_positions()
            await asyncio.sleep(READ_S)
            await self._read_meters()
            for queue in self._queues.values():
                queue.rearrange()

    async def _read_meters(self) -> None:
        """Other work on the event loop comes between two parts."""
        for number, permit in enumerate(tuple(self._metered), 1):
            permit.read()
            if number % READ_AT_ONCE == 0:
                await asyncio.sleep(0)

    async def _report_positions(self) -> None:
        """Other work on the event loop comes between two parts."""
        steps = count(1)
        for queue in tuple(self._queues.values()):
            for _ in queue.standings():
                if next(steps) % STANDINGS_AT_ONCE == 0:
                    await asyncio.sleep(0)


class LocalPermit(Stream):
    """Implements domain.scheduling.Permit."""

    __slots__ = (
        "_before",
        "_moved",
        "_preempted",
        "_queue",
        "_scheduler",
        "_timer",
        "_tokens",
        "_turn",
    )

    def __init__(
        self,
        ticket: Ticket,
        queue: FairQueue,
        scheduler: InProcessScheduler,
        moved: Callable[[Standing], None],
        preempted: Callable[[], None],
    ) -> None:
        super().__init__(ticket)
        self._queue = queue
        self._scheduler = scheduler
        self._moved = moved
        self._preempted = preempted
        self._turn: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._tokens: Callable[[], int] | None = None
        self._before = 0

    async def turn(self) -> None:
        """Returns when a waiting stream may run. Raises RateLimited."""
        loop = asyncio.get_running_loop()
        turn = self._turn = loop.create_future()
        if self.deadline < math.inf:
            wait_s = max(self.deadline - self._scheduler.clock(), 0)
            self._timer = loop.call_later(wait_s, self._expire)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                turn.exception()  # a refusal in the same turn of the event loop
            raise
        finally:
            if self._timer is not None:
                self._timer.cancel()

    def _expire(self) -> None:
        if left_s := self._queue.expire(self):
            self._timer = asyncio.get_running_loop().call_later(left_s, self._expire)

    def see_prompt(self, uncached_tokens: int) -> None:
        if self.state is State.RUNNING:
            self._queue.see_prompt(self, uncached_tokens)

    def meter(self, tokens: Callable[[], int]) -> None:
        """What the stream has generated already was charged with another permit."""
        if self.state is State.RUNNING:
            self._tokens = tokens
            self._before = tokens() - self.tokens
            self._scheduler.add_meter(self)

    def generated(self) -> int:
        return self.tokens if self._tokens is None else self._tokens() - self._before

    def read(self) -> None:
        if self._tokens is not None and self.state is State.RUNNING:
            self._queue.charge(self, self.generated())

    def release(self) -> None:
        if self.state is State.RUNNING:
            self.read()
            self._scheduler.remove_meter(self)
            self._queue.release(self)

    def granted(self) -> None:
        if self._turn is not None and not self._turn.done():
            self._turn.set_result(None)

    def refused(self, error: RateLimited) -> None:
        if self._turn is not None and not self._turn.done():
            self._turn.set_exception(error)

    def moved(self, standing: Standing) -> None:
        asyncio.get_running_loop().call_soon(self._report, standing)

    def preempted(self) -> None:
        asyncio.get_running_loop().call_soon(self._report_preemption)

    def _report(self, standing: Standing) -> None:
        if self.state is State.WAITING:
            self._moved(standing)

    def _report_preemption(self) -> None:
        if self.state is State.RUNNING:
            self._scheduler.count_preemption(self.ticket.queue)
            self._preempted()


def _check(ticket: Ticket) -> None:
    """Raises ValueError for a patience that is not a number, and for a weight with which counters
    lose their precision.
    """
    if not LEAST_WEIGHT <= ticket.weight <= MOST_WEIGHT:
        raise ValueError(
            f"the weight of tenant {ticket.tenant!r} is {ticket.weight}: it must be from "
            f"{LEAST_WEIGHT:g} to {MOST_WEIGHT:g}"
        )
    if ticket.patience_s is not None and math.isnan(ticket.patience_s):
        raise ValueError("patience_s is not a number")
