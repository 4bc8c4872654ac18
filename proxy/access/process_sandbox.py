"""Runs functions in child processes with limits on CPU time and memory. Made by `app`.

It uses anyio's process pool, which kills a child that exceeds its time. No child starts before
`start`, or the first call.
"""

from __future__ import annotations

import asyncio
import functools
import sys
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import structlog
from anyio import BrokenWorkerProcess, CapacityLimiter, fail_after, to_process

from proxy.access.per_caller_lock import PerCallerLock
from proxy.access.sandbox_child import import_all, run_limited
from proxy.domain.errors import RateLimited
from proxy.domain.sandbox import TooCostly

logger = structlog.get_logger(__name__)

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
MB = 1_000_000
WALL_S = 60.0  # from the call's start, for one that waits instead of computing
START_S = 30.0  # then the server starts without waiting for it; usually it takes half a second
IMPORTS = (
    "proxy.language.prompting.chat_template",
    "proxy.language.structured.checks",
    "proxy.language.structured.lark",
)


class ProcessSandbox:
    """Implements domain.sandbox.Sandbox. Belongs to one event loop, which ends its children.

    Args:
        cpu_s: of one call. memory_bytes: of one call, beyond that of an idle child.
        waiting: how many calls one caller may have, the running one included.
        patience_s: how long a call waits for its turn in its tenant, and then for a child.
    """

    def __init__(
        self,
        *,
        processes: int = 2,
        cpu_s: float = 2.0,
        memory_bytes: int = 512 * MB,
        waiting: int = 256,
        patience_s: float = 30.0,
    ) -> None:
        self._processes = processes
        self._cpu_s = cpu_s
        self._memory_bytes = memory_bytes
        self._patience_s = patience_s
        self._children = CapacityLimiter(processes)
        self._lock = PerCallerLock(waiting=waiting, patience_s=patience_s)

    async def start(self) -> None:
        """Starts all children and imports the modules that calls need. Errors are only logged.

        A child's first call sets its memory limit, so the limit does not count the imports.
        """
        # anyio's children would run the main module again, and keep all that it imports
        vars(sys.modules["__main__"]).pop("__file__", None)
        children = [
            asyncio.ensure_future(
                to_process.run_sync(import_all, IMPORTS, cancellable=True, limiter=self._children)
            )
            for _ in range(self._processes)
        ]
        _, late = await asyncio.wait(children, timeout=START_S)
        if late:
            logger.warning(
                "the sandbox starts slowly: first calls wait for it",
                after_s=START_S,
                advice="nothing, if it is once; otherwise give the proxy more CPU",
            )
        for child in children:
            if child not in late and (error := child.exception()) is not None:
                logger.error(
                    "the sandbox cannot start: requests that need it will fail",
                    exc_info=error,
                    advice="look at the traceback: memory, processes or /tmp may be used up; then "
                    "restart the proxy",
                )

    async def run(
        self,
        caller: str,
        function: Callable[Arguments, Result],
        *args: Arguments.args,
        **kwargs: Arguments.kwargs,
    ) -> Result:
        call = functools.partial(function, *args, **kwargs)
        running = asyncio.ensure_future(self._run(caller, call))
        # asyncio would log an exception that nobody awaits, as after a disconnect
        running.add_done_callback(lambda done: done.cancelled() or done.exception())
        # A call continues after its client has disconnected: to kill and restart the child costs
        # more than most calls, and the limits bound it anyway.
        return await asyncio.shield(running)

    async def _run(self, caller: str, call: Callable[[], Result]) -> Result:
        async with self._lock.hold(caller):
            try:
                with fail_after(self._patience_s):
                    await self._children.acquire()
            except TimeoutError as error:
                raise RateLimited(
                    "This server is busy with checks of other requests. Try again in a moment."
                ) from error
            try:
                with fail_after(WALL_S):
                    return await to_process.run_sync(
                        run_limited,
                        call,
                        self._cpu_s,
                        self._memory_bytes,
                        cancellable=True,
                        limiter=CapacityLimiter(1),  # the child's permit is held here
                    )
            except (BrokenWorkerProcess, MemoryError, TimeoutError) as error:
                if isinstance(error, BrokenWorkerProcess) and error.args:
                    raise  # the child did not start (anyio gives a reason), which is our fault
                raise TooCostly(
                    f"it takes more than {self._cpu_s:g} s or {self._memory_bytes // MB} MB to "
                    "check"
                ) from error
            finally:
                self._children.release()
