"""Where requests wait until Triton is ready again. `readiness` looks, and lets them go."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from triton_openai.proxy.access.start_gate import StartGate

Waiter = asyncio.Future[bool]


class Comeback:
    """Lets waiting requests go a few in each turn of the event loop.

    A look at Triton counts for the requests that waited before it began: a look that was under way
    when Triton died may still find it ready.
    """

    def __init__(self, gate: StartGate) -> None:
        self._gate = gate
        self._waiting: dict[Waiter, None] = {}  # in order

    async def wait(self, timeout_s: float) -> bool:
        """Whether Triton was ready within this time, by a look that began after this call."""
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
        """Those for whom a look counts that begins now."""
        return tuple(waiter for waiter in self._waiting if not waiter.done())

    async def release(self, waiters: Iterable[Waiter]) -> None:
        """Every model is ready."""
        for waiter in waiters:
            await self._gate.wait()
            _settle(waiter, True)


def _settle(waiter: Waiter, is_back: bool) -> None:
    if not waiter.done():  # its client may have disconnected
        waiter.set_result(is_back)
