"""The queues of this proxy by name, and what falls due in them. Used by `in_process`.

It does no I/O and starts no timers: `timekeeper` calls `expire` and `standings`.
"""

from __future__ import annotations

from collections.abc import Iterator

from proxy.domain.scheduling import QueueState
from proxy.scheduling.deadlines import Deadlines
from proxy.scheduling.fair_queue import Clock, FairQueue
from proxy.scheduling.limits import QueueLimits
from proxy.scheduling.stream import State, Stream

EXPIRED_AT_ONCE = 200


class FairQueues:
    """A queue that was never named has no bound. There are as many as models in pools."""

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
