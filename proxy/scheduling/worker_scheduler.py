"""A worker's end of the parent's queues. Implements domain.scheduling.Scheduler."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from typing_extensions import Self

from triton_openai.proxy.domain.scheduling import Permit, Standing, Ticket
from triton_openai.proxy.scheduling.host_share import Share, whole


class WorkerScheduler:
    """path: of the parent's socket. share: of a capacity, this host's part."""

    def __init__(self, path: Path, *, share: Share = whole) -> None:
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        raise NotImplementedError

    async def __aexit__(self, *exc_info: object) -> None:
        raise NotImplementedError

    async def acquire(
        self,
        ticket: Ticket,
        *,
        moved: Callable[[Standing], None],
        preempted: Callable[[], None],
    ) -> Permit:
        raise NotImplementedError

    def set_capacity(self, queue: str, streams: int | None) -> None:
        raise NotImplementedError
