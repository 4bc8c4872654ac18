"""Keeps a server running: restarts it when it dies, after growing pauses.

Independent of the proxy, which finds out over gRPC whether Triton is reachable. Called by `run`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Protocol

from proxy import background
from proxy.domain.errors import LaunchError
from proxy.operate.triton_server.server import StartCrashed

FIRST_STARTS = 3  # tries, where each crashes
FIRST_DELAY_S, MOST_DELAY_S = 0.2, 10.0
RESET_S = 60.0  # a server that has run for so long is restarted after the first delay again


class Server(Protocol):
    """A supervised process: a `TritonServer`."""

    async def start(self) -> None: ...
    async def wait(self) -> str: ...
    async def stop(self, grace_s: float = ...) -> None: ...


def delay_s(failures: int) -> float:
    """The pause before a restart: doubles with each failure."""
    return min(FIRST_DELAY_S * 2.0 ** min(failures, 30), MOST_DELAY_S)


class Supervisor:
    def __init__(
        self,
        server: Server,
        say: Callable[[str], None],
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._server = server
        self._say = say
        self._clock = clock
        self._sleep = sleep
        self._watch: asyncio.Task[None] | None = None

    @property
    def is_running(self) -> bool:
        return self._watch is not None

    async def start(self) -> None:
        """
        Raises:
            LaunchError: the first start failed; only after a crash is it tried again.
        """
        for failures in range(FIRST_STARTS):
            try:
                await self._start_server()
                break
            except StartCrashed as error:
                if failures == FIRST_STARTS - 1:
                    raise
                self._say(f"start of tritonserver failed, and is tried again: {error}")
                await self._sleep(delay_s(failures))
        self._watch = asyncio.create_task(self._keep_running())

    async def stop(self, *, grace_s: float) -> None:
        if self._watch is not None:
            await background.end([self._watch])
        await self._server.stop(grace_s)

    async def _start_server(self) -> None:
        started = self._clock()
        await self._server.start()
        self._say(f"tritonserver is ready after {self._clock() - started:.1f} s")

    async def _keep_running(self) -> None:
        failures = 0
        while True:
            ready_since = self._clock()
            self._say(f"tritonserver died ({await self._server.wait()})")
            if self._clock() - ready_since >= RESET_S:
                failures = 0
            failures = await self._restart(failures)

    async def _restart(self, failures: int) -> int:
        """Tries until the server runs again; returns the number of failures so far."""
        while True:
            self._say(f"restarting tritonserver in {delay_s(failures):g} s")
            await self._sleep(delay_s(failures))
            failures += 1
            try:
                await self._start_server()
            except (LaunchError, OSError) as error:
                self._say(f"restart of tritonserver failed: {error}")
            else:
                return failures
