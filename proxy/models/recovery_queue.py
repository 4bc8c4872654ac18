"""Requests that wait until Triton is ready again. `readiness` checks Triton and releases them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from proxy.access.start_gate import StartGate

Waiter = asyncio.Future[bool]


class RecoveryQueue:
    """Releases waiting requests, a few in each turn of the event loop.

    A readiness check releases only requests that waited before it began: a check that was already
    running when Triton died may still report it ready.
    """

    def __init__(self, gate: StartGate) -> None:
        self._gate = gate
        self._waiting: dict[Waiter, None] = {}  # in order

    async def wait(self, timeout_s: float) -> bool:
        """Whether Triton was ready within this time, by a check that began after this call."""
        loop = asyncio.get_running_loop()
        waiter: Waiter = loop.create_future()
        timer = loop.call_later(timeout_s, _settle, waiter, False)
        self._waiting[waiter] = None
        try:
            return await waiter
        finally:
            timer.cancel()
            del self._waiting[waiter]

    def waiting(self) -> tuple[Waiter, ...]:
        """The requests that a readiness check which begins now may release."""
        return tuple(waiter for waiter in self._waiting if not waiter.done())

    async def release(self, waiters: Iterable[Waiter]) -> None:
        """Lets these requests continue, because every model is ready."""
        for waiter in waiters:
            await self._gate.wait()
            _settle(waiter, True)


def _settle(waiter: Waiter, is_back: bool) -> None:
    if not waiter.done():  # its client may have disconnected
        waiter.set_result(is_back)
