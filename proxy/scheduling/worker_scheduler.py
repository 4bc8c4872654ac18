"""A worker's end of the parent's queues. Implements domain.scheduling.Scheduler."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from typing_extensions import Self

from triton_openai.proxy.domain.errors import LimitsUnavailable
from triton_openai.proxy.domain.scheduling import QueueState, Standing, Ticket
from triton_openai.proxy.scheduling import tickets
from triton_openai.proxy.scheduling.host_share import Share, whole
from triton_openai.proxy.scheduling.worker_connection import WorkerConnection
from triton_openai.proxy.scheduling.worker_permit import WorkerPermit


class WorkerScheduler:
    """path: of the parent's socket. share: of a capacity, this host's part; asked at each
    `set_capacity`.

    Without the parent there is no queue, and no stream may begin: a parent that dies ends its
    workers.
    """

    def __init__(self, path: Path, *, share: Share = whole) -> None:
        self._path = path
        self._share = share
        self._connection: WorkerConnection | None = None
        self._early: dict[str, tuple[int | None, int]] = {}  # capacities, until it is connected

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        _, self._connection = await loop.create_unix_connection(WorkerConnection, str(self._path))
        for queue, (streams, spare) in self._early.items():
            self._connection.set_capacity(queue, streams, spare)
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        if self._connection is not None:
            self._connection.close()

    async def acquire(
        self,
        ticket: Ticket,
        *,
        moved: Callable[[Standing], None],
        preempted: Callable[[], None],
    ) -> WorkerPermit:
        """As Scheduler.acquire. A free row costs one message to the parent and back.

        Raises:
            LimitsUnavailable: the parent is gone.
        """
        tickets.check(ticket)
        if self._connection is None:
            raise LimitsUnavailable("The queue of requests is not connected. Try again later.")
        permit = WorkerPermit(self._connection, moved, preempted)
        await self._connection.acquire(permit, ticket)
        return permit

    def set_capacity(self, queue: str, streams: int | None, *, spare: int = 0) -> None:
        part = None if streams is None else self._share(streams)
        if self._connection is None:
            self._early[queue] = part, self._share(spare)
        else:
            self._connection.set_capacity(queue, part, self._share(spare))

    async def states(self, *, tenants: int = 0) -> tuple[QueueState, ...]:
        """Raises LimitsUnavailable: the parent is gone."""
        if self._connection is None:
            raise LimitsUnavailable("The queue of requests is not connected. Try again later.")
        return await self._connection.states(tenants)
