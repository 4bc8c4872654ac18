"""The fair queue in this process: of one worker. Implements domain.scheduling.Scheduler."""

from __future__ import annotations

import time
from collections.abc import Callable

from typing_extensions import Self

from triton_openai.proxy.domain.scheduling import Permit, Standing, Ticket
from triton_openai.proxy.scheduling.host_share import Share, whole
from triton_openai.proxy.scheduling.limits import QueueLimits


class InProcessScheduler:
    """limits: of each queue. share: of a capacity, this host's part; asked at each `set_capacity`.
    clock: seconds that never go back.
    """

    def __init__(
        self,
        limits: QueueLimits,
        *,
        share: Share = whole,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
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
