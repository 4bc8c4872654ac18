"""Keeps a server running: restarts it when it dies, after growing pauses.

Independent of the proxy, which finds out over gRPC whether Triton is reachable. Called by
launch.run.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from proxy import background
from proxy.processes.errors import LaunchError, StartCrashed

FIRST_STARTS = 3  # tries, where each crashes


class Server(Protocol):
    """A supervised process: a `TritonServer`."""

    async def start(self) -> None: ...
    async def wait(self) -> str: ...
    async def stop(self, grace_s: float = ...) -> None: ...


class State(Enum):
    STOPPED = "stopped"
    STARTING = "starting"
    READY = "ready"
    WAITING = "waiting to restart"


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """The pause before a restart: from `first_s`, doubling to `most_s`.

    It begins anew when the server has run for `reset_s`.
    """

    first_s: float = 0.2
    most_s: float = 10.0
    reset_s: float = 60.0

    def delay_s(self, failures: int) -> float:
        return min(self.first_s * 2.0 ** min(failures, 30), self.most_s)


class Supervisor:
    def __init__(
        self,
        server: Server,
        *,
        name: str,
        say: Callable[[str], None],
        backoff: Backoff | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._server = server
        self._name = name
        self._say = say
        self._backoff = backoff or Backoff()
        self._clock = clock
        self._sleep = sleep
        self._watch: asyncio.Task[None] | None = None
        self.state = State.STOPPED

    @property
    def is_running(self) -> bool:
        return self.state is not State.STOPPED

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
                await self._sleep(self._backoff.delay_s(failures))
        self._watch = asyncio.create_task(self._keep_running())

    async def stop(self, *, grace_s: float) -> None:
        if self._watch is not None:
            await background.end([self._watch])
        await self._server.stop(grace_s)
        self.state = State.STOPPED

    async def _start_server(self) -> None:
        self.state = State.STARTING
        started = self._clock()
        try:
            await self._server.start()
        except BaseException:
            self.state = State.STOPPED
            raise
        self.state = State.READY
        self._say(f"{self._name} is ready after {self._clock() - started:.1f} s")

    async def _keep_running(self) -> None:
        failures = 0
        while True:
            ready_since = self._clock()
            how = await self._server.wait()
            self._say(f"{self._name} died ({how})")
            if self._clock() - ready_since >= self._backoff.reset_s:
                failures = 0
            failures = await self._restart(failures)

    async def _restart(self, failures: int) -> int:
        """Tries until the server runs again; returns the number of failures so far."""
        while True:
            delay_s = self._backoff.delay_s(failures)
            failures += 1
            self.state = State.WAITING
            self._say(f"restarting {self._name} in {delay_s:g} s")
            await self._sleep(delay_s)
            try:
                await self._start_server()
            except (LaunchError, OSError) as error:
                self._say(f"restart of {self._name} failed: {error}")
            else:
                return failures
