"""The fair queues of this proxy. Implements domain.scheduling.Scheduler."""

from __future__ import annotations

import asyncio
import heapq
import math
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import count, islice
from typing import Protocol

from typing_extensions import Self

from proxy import background
from proxy.domain.errors import RateLimited
from proxy.domain.scheduling import QueueState, Standing, Ticket
from proxy.scheduling.fair_queue import Clock, FairQueue, RefusedByQueue
from proxy.scheduling.places import QueueLimits
from proxy.scheduling.stream import State, Stream

SPARE_ENTRIES = 64
EXPIRED_AT_ONCE = 200
STANDINGS_S = 1.0
STANDINGS_AT_ONCE = 200  # of some 5 us each
SOON_S = 0.001
READ_S = 0.25
READ_AT_ONCE = 500
COUNT_EVERY_S = 1.0
LEAST_WEIGHT, MOST_WEIGHT = 1e-6, 1e6


class Deadlines:
    """When the patience of streams that wait is over: a heap. A stream that no longer waits stays
    in it until such streams are half of the heap.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Stream]] = []
        self._numbers = count()

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, stream: Stream, waiting: int) -> None:
        """waiting: streams of all queues."""
        if stream.deadline == math.inf:
            return
        heapq.heappush(self._heap, (stream.deadline, next(self._numbers), stream))
        if len(self._heap) > 2 * waiting + SPARE_ENTRIES:
            self._heap = [entry for entry in self._heap if entry[2].state is State.WAITING]
            heapq.heapify(self._heap)

    def next(self) -> float | None:
        """The earliest of a stream that waits; None where none does."""
        heap = self._heap
        while heap and heap[0][2].state is not State.WAITING:
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def pop(self) -> Stream:
        """The stream of `next`."""
        return heapq.heappop(self._heap)[2]


class FairQueues:
    """The queues of this proxy by name, and what falls due in them. It starts no timers.

    A queue that was never named has no bound. There are as many as models in pools.
    """

    def __init__(self, limits: QueueLimits, clock: Clock) -> None:
        self._limits = limits
        self._clock = clock
        self._queues: dict[str, FairQueue] = {}
        self._deadlines = Deadlines()

    @property
    def waiting(self) -> int:
        return sum(queue.waiting for queue in self._queues.values())

    def __getitem__(self, name: str) -> FairQueue:
        queue = self._queues.get(name)
        if queue is None:
            queue = self._queues[name] = FairQueue(self._limits, self._clock)
        return queue

    def enter(self, stream: Stream) -> FairQueue:
        """The stream's queue. See FairQueue.enter."""
        queue = self[stream.ticket.queue]
        queue.enter(stream)
        if stream.state is State.WAITING:
            self._deadlines.add(stream, self.waiting)
        return queue

    def states(self, tenants: int) -> tuple[QueueState, ...]:
        """Of the queues that have a capacity or streams, by name. See FairQueue.state."""
        return tuple(
            queue.state(name, tenants)
            for name, queue in sorted(self._queues.items())
            if queue.capacity is not None or queue.running or queue.waiting
        )

    def deadline(self) -> float | None:
        """When `expire` has something to do; None while nobody waits."""
        return self._deadlines.next()

    def expire(self) -> None:
        """Refuses streams whose patience is over, a bounded number of them at once."""
        now = self._clock()
        for _ in range(EXPIRED_AT_ONCE):
            deadline = self._deadlines.next()
            if deadline is None or deadline > now:
                return
            stream = self._deadlines.pop()
            self[stream.ticket.queue].expire(stream)

    def rearrange(self) -> None:
        """See FairQueue.rearrange."""
        for queue in self._queues.values():
            queue.rearrange()

    def standings(self) -> Iterator[None]:
        """Tells the streams of all queues their positions, one for each step."""
        for queue in list(self._queues.values()):
            yield from queue.standings()


class Timekeeper:
    """The timers of the queues: one for deadlines, one for positions."""

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


class Meters:
    """Reads the meters of running streams a few times a second, up to 500 at once, and then lets
    their queues be rearranged. There is no timer while nothing runs.
    """

    def __init__(self, queues: FairQueues) -> None:
        self._queues = queues
        self._running: dict[LocalPermit, None] = {}
        self._timer: asyncio.Handle | None = None

    def add(self, permit: LocalPermit) -> None:
        self._running[permit] = None
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(READ_S, self._begin)

    def remove(self, permit: LocalPermit) -> None:
        self._running.pop(permit, None)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _begin(self) -> None:
        self._go_on(list(self._running))

    def _go_on(self, permits: list[LocalPermit]) -> None:
        """permits: those that are still to be read; some have ended meanwhile."""
        loop = asyncio.get_running_loop()
        now, later = permits[:READ_AT_ONCE], permits[READ_AT_ONCE:]
        for permit in now:
            if permit in self._running:
                permit.read()
        self._queues.rearrange()
        if later:
            self._timer = loop.call_soon(self._go_on, later)
        elif self._running:
            self._timer = loop.call_later(READ_S, self._begin)
        else:
            self._timer = None


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
    """limits: of each queue. clock: seconds that never go back."""

    def __init__(
        self,
        limits: QueueLimits,
        counter: QueueCounter,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._counter = counter
        self._clock = clock
        self._queues = FairQueues(limits, clock)
        self._timekeeper = Timekeeper(self._queues, clock)
        self._meters = Meters(self._queues)
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        self._tasks = [asyncio.create_task(self._keep_counting())]
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await background.end(self._tasks)
        self._timekeeper.stop()
        self._meters.stop()

    async def acquire(
        self,
        ticket: Ticket,
        *,
        moved: Callable[[Standing], None],
        preempted: Callable[[], None],
    ) -> LocalPermit:
        def count_and_stop() -> None:
            self._counter.preempted(ticket.queue)
            preempted()

        _check(ticket)
        permit = LocalPermit(ticket, moved, count_and_stop, self._meters)
        began_s = self._clock()
        try:
            queue = permit.queue = self._queues.enter(permit)
            if permit.state is State.WAITING:
                self._timekeeper.watch()
                await permit.turn()
        except RefusedByQueue as error:
            self._counter.refused(ticket.queue, error.reason.value, self._clock() - began_s)
            raise
        except asyncio.CancelledError:
            queue.leave(permit)
            raise
        self._counter.waited(ticket.queue, self._clock() - began_s)
        return permit

    def set_capacity(self, queue: str, streams: int | None, *, spare: int = 0) -> None:
        self._queues[queue].set_capacity(streams, spare)

    def states(self, *, tenants: int = 0) -> tuple[QueueState, ...]:
        return self._queues.states(tenants)

    async def _keep_counting(self) -> None:
        while True:
            self._counter.counted(self.states())
            await asyncio.sleep(COUNT_EVERY_S)


class LocalPermit(Stream):
    """Implements domain.scheduling.Permit."""

    __slots__ = ("_before", "_meters", "_moved", "_preempted", "_tokens", "_turn", "queue")

    queue: FairQueue

    def __init__(
        self,
        ticket: Ticket,
        moved: Callable[[Standing], None],
        preempted: Callable[[], None],
        meters: Meters,
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
