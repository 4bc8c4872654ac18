"""Child processes with limits on CPU time and memory; see domain.sandbox.Sandbox. Made by `app`.

anyio's process pool, which kills a child that overruns. Nothing starts before `start`, or the
first call.
"""

from __future__ import annotations

import asyncio
import functools
import importlib
import resource
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import ParamSpec, TypeVar

import psutil
import structlog
from anyio import BrokenWorkerProcess, CapacityLimiter, fail_after, to_process

from triton_openai.proxy.access.caller_turns import CallerTurns
from triton_openai.proxy.domain.sandbox import TooCostly

logger = structlog.get_logger(__name__)

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
MB = 1_000_000
START_S = 30.0  # then requests are served without it; an idle machine takes half a second
NICE = 10  # a tenth of the weight that the event loop and the engine have


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxLimits:
    """cpu_s, memory_bytes: of one call, beyond what an idle child has. waiting: of one caller.

    wall_s: for a call that waits instead of computing. imports: modules that calls need.
    """

    processes: int = 2
    cpu_s: float = 2.0
    memory_bytes: int = 512 * MB
    wall_s: float = 60.0
    waiting: int = 256
    imports: tuple[str, ...] = ()


class ProcessSandbox:
    """Belongs to one event loop, which ends its children."""

    def __init__(self, limits: SandboxLimits | None = None) -> None:
        self._limits = limits or SandboxLimits()
        self._limiter: CapacityLimiter | None = None
        self._turns = CallerTurns(waiting=self._limits.waiting)

    async def start(self) -> None:
        """All children, with what their calls import. A fault is logged, and the start goes on.

        The memory limit is set by a child's first call, so it does not count the imports.
        """
        children = [
            asyncio.ensure_future(
                to_process.run_sync(
                    _import_all, self._limits.imports, cancellable=True, limiter=self._one_a_child()
                )
            )
            for _ in range(self._limits.processes)
        ]
        _, late = await asyncio.wait(children, timeout=START_S)
        if late:
            logger.warning("the sandbox is slow to start: first calls wait for it", after_s=START_S)
        for child in children:
            if child not in late and (error := child.exception()) is not None:
                logger.error(
                    "the sandbox does not start: what needs it will be refused", exc_info=error
                )

    async def run(
        self,
        caller: str,
        function: Callable[Arguments, Result],
        *args: Arguments.args,
        **kwargs: Arguments.kwargs,
    ) -> Result:
        call = functools.partial(function, *args, **kwargs)
        running = asyncio.ensure_future(self._in_turn(caller, call))
        running.add_done_callback(_look_at)
        # a caller that disconnects does not end the child: starting another costs more than most
        # calls, and the limits end it anyway
        return await asyncio.shield(running)

    async def _in_turn(self, caller: str, call: Callable[[], Result]) -> Result:
        async with self._turns.turn(caller):
            return await self._limited(call)

    async def _limited(self, call: Callable[[], Result]) -> Result:
        limits = self._limits
        try:
            with fail_after(limits.wall_s):
                return await to_process.run_sync(
                    _run_limited,
                    call,
                    limits.cpu_s,
                    limits.memory_bytes,
                    cancellable=True,
                    limiter=self._one_a_child(),
                )
        except (BrokenWorkerProcess, MemoryError, TimeoutError) as error:
            if isinstance(error, BrokenWorkerProcess) and error.args:
                raise  # anyio says why: the child did not start, which is no caller's fault
            raise TooCostly(
                f"it takes more than {limits.cpu_s:g} s or {limits.memory_bytes // MB} MB to check"
            ) from error

    def _one_a_child(self) -> CapacityLimiter:
        """Made when the event loop runs."""
        if self._limiter is None:
            self._limiter = CapacityLimiter(self._limits.processes)
        return self._limiter


def _import_all(names: tuple[str, ...]) -> None:
    for name in names:
        importlib.import_module(name)


def _look_at(call: asyncio.Future[Result]) -> None:
    """asyncio logs an exception that nobody looked at, as after a caller has disconnected."""
    if not call.cancelled():
        call.exception()


def _run_limited(call: Callable[[], Result], cpu_s: float, memory_bytes: int) -> Result:
    """In the child. SIGPROF's default action ends it, amid C code too."""
    _limit_process(memory_bytes)
    signal.setitimer(signal.ITIMER_PROF, cpu_s)
    try:
        return call()
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


@functools.cache
def _limit_process(memory_bytes: int) -> None:
    """Address space beyond what the process has at its first call; no core file; and less of a
    busy core than streams get.
    """
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + memory_bytes
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    psutil.Process().nice(NICE)
