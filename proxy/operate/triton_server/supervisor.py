"""Keeps a server running: restarts it when it dies, after growing pauses.

Independent of the proxy, which finds out over gRPC whether Triton is reachable. Called by
`run`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Protocol

from proxy import background
from proxy.processes.errors import LaunchError, StartCrashed

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
        *,
        name: str,
        say: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._server = server
        self._name = name
        self._say = say
        self._clock = clock
        self._sleep = sleep
        self._watch: asyncio.Task[None] | None = None
        self.is_running = False

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
                self._say(f"start of {self._name} failed, and is tried again: {error}")
                await self._sleep(delay_s(failures))
        self._watch = asyncio.create_task(self._keep_running())

    async def stop(self, *, grace_s: float) -> None:
        if self._watch is not None:
            await background.end([self._watch])
        await self._server.stop(grace_s)
        self.is_running = False

    async def _start_server(self) -> None:
        self.is_running = True
        started = self._clock()
        try:
            await self._server.start()
        except BaseException:
            self.is_running = False
            raise
        self._say(f"{self._name} is ready after {self._clock() - started:.1f} s")

    async def _keep_running(self) -> None:
        failures = 0
        while True:
            ready_since = self._clock()
            how = await self._server.wait()
            self._say(f"{self._name} died ({how})")
            if self._clock() - ready_since >= RESET_S:
                failures = 0
            failures = await self._restart(failures)

    async def _restart(self, failures: int) -> int:
        """Tries until the server runs again; returns the number of failures so far."""
        while True:
            pause_s = delay_s(failures)
            failures += 1
            self.is_running = True
            self._say(f"restarting {self._name} in {pause_s:g} s")
            await self._sleep(pause_s)
            try:
                await self._start_server()
            except (LaunchError, OSError) as error:
                self._say(f"restart of {self._name} failed: {error}")
            else:
                return failures
