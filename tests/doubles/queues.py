"""Schedulers in which nobody waits: for capacities, and for what operators see of queues."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from proxy.domain.scheduling import FreeScheduler, QueueState


class CapacityRecorder(FreeScheduler):
    """Keeps the capacities that it is given. running: own streams by queue, as a test sets them."""

    def __init__(self) -> None:
        self.capacities: dict[str, int | None] = {}
        self.spares: dict[str, int] = {}
        self.changes = 0
        self.running: dict[str, int] = {}

    def set_capacity(self, queue: str, streams: int | None, *, spare: int = 0) -> None:
        self.changes += 1
        self.capacities[queue] = streams
        self.spares[queue] = spare

    def states(self, *, tenants: int = 0) -> tuple[QueueState, ...]:
        return states(self.running)


class FixedQueues(FreeScheduler):
    """Nobody waits in it, whatever its queues show."""

    def __init__(self, *queues: QueueState) -> None:
        self._queues = queues

    def states(self, *, tenants: int = 0) -> tuple[QueueState, ...]:
        return tuple(replace(one, tenants=one.tenants[:tenants]) for one in self._queues)


def states(running: Mapping[str, int]) -> tuple[QueueState, ...]:
    return tuple(
        QueueState(queue=queue, capacity=None, running=count, waiting=0)
        for queue, count in running.items()
    )
