"""One tritonserver process: start it until it is ready, wait for its end, stop it.

Its Python stubs are in its process group. Processes that MPI started have their own groups, and
are killed one by one. Called by processes.supervisor.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from asyncio.subprocess import DEVNULL, Process
from dataclasses import dataclass

from triton_openai.proxy.launch.triton_server import probe, run_folder, server_log, shm, stubs
from triton_openai.proxy.launch.triton_server.command import LOOPBACK, Ports
from triton_openai.proxy.launch.triton_server.run_folder import RunFolder
from triton_openai.proxy.processes import lifeline
from triton_openai.proxy.processes.errors import (
    LaunchError,
    ModelLoadingFailed,
    StartCrashed,
    exit_reason,
)

POLL_S = 0.05
# The proxy, or `drain`, has drained the streams before; those that still run are too late.
EXIT_TIMEOUT_S = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """What a start needs."""

    arguments: list[str]
    environment: dict[str, str]
    folder: RunFolder
    ports: Ports
    shm_prefix: str
    start_timeout_s: float


class TritonServer:
    """See processes.supervisor.Server. It is killed when the thread that started it ends."""

    def __init__(self, launch: Launch) -> None:
        self._launch = launch
        self._process: Process | None = None
        self._is_stopping = False

    @property
    def ports(self) -> Ports:
        return self._launch.ports

    @property
    def shm_prefix(self) -> str:
        return self._launch.shm_prefix

    async def start(self) -> None:
        """Returns when every model is loaded and the server responds.

        Raises:
            StartCrashed: by Triton's own fault.
            LaunchError: it ended, or was not ready in time; the message quotes its log.
        """
        await self.stop(grace_s=0)
        self._is_stopping = False
        process = self._process = await self._spawn()
        try:
            await asyncio.wait_for(self._until_ready(process), self._launch.start_timeout_s)
        except asyncio.TimeoutError:
            await self.stop(grace_s=0)
            what = f"was not ready within {self._launch.start_timeout_s:g} s"
            raise self._failure(f"{what} (TRITON_START_TIMEOUT_S)") from None
        except BaseException:
            await self.stop(grace_s=0)
            raise

    async def wait(self) -> str:
        """Returns how it ended. If a process of one of its Python models dies, kills the server."""
        if self._process is None:
            raise RuntimeError("not started")
        process = self._process
        ending = asyncio.create_task(process.wait())
        stub_death = asyncio.create_task(stubs.first_death(process.pid))
        try:
            await asyncio.wait((ending, stub_death), return_when=asyncio.FIRST_COMPLETED)
            if ending.done() or self._is_stopping:  # then its processes end in any order
                return exit_reason(await ending)
            await _end(process, grace_s=0)
            return stub_death.result()
        finally:
            ending.cancel()
            stub_death.cancel()

    async def stop(self, grace_s: float = EXIT_TIMEOUT_S + 2) -> None:
        """Sends SIGTERM, then SIGKILL to the group, and removes its shared memory.

        A second call with a shorter grace period ends the wait of the first.
        """
        self._is_stopping = True
        if self._process is not None:
            await _end(self._process, grace_s)
        self._process = None
        shm.sweep(self._launch.shm_prefix)

    async def _spawn(self) -> Process:
        with run_folder.fresh_log(self._launch.folder).open("ab") as log:
            return await asyncio.create_subprocess_exec(
                *lifeline.command(self._launch.arguments),
                cwd=self._launch.folder.artifacts,
                env=self._launch.environment,
                stdin=DEVNULL,
                stdout=log,
                stderr=log,
            )

    async def _until_ready(self, process: Process) -> None:
        while not await self._is_ready():
            if process.returncode is not None:
                raise self._failure(f"ended with {exit_reason(process.returncode)}")
            await asyncio.sleep(POLL_S)

    async def _is_ready(self) -> bool:
        """tritonserver opens its metrics port last: after gRPC, and after loading all models.

        If a model cannot be loaded, it exits before that (--exit-on-error=true is the default).
        """
        try:
            status, _ = await probe.get(LOOPBACK, self._launch.ports.metrics, "/metrics")
        except OSError:
            return False
        return status == 200

    def _failure(self, what: str) -> LaunchError:
        log = self._launch.folder.log
        if failed := server_log.failed_load(log):
            model, reason = failed
            return ModelLoadingFailed(self._launch.folder.weights(model), f"{reason} (log: {log})")
        reasons = "; ".join(server_log.reasons(log)) or "the log gives no reason"
        kind = StartCrashed if server_log.CRASH in reasons else LaunchError
        return kind(f"tritonserver {what}: {reasons} (log: {log})")


async def _end(process: Process, grace_s: float) -> None:
    if process.returncode is None and grace_s > 0:
        _send(process, signal.SIGTERM)
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(process.wait(), grace_s)
    descendants = stubs.descendants(process.pid) if process.returncode is None else []
    with contextlib.suppress(ProcessLookupError):  # includes its stubs
        os.killpg(process.pid, signal.SIGKILL)
    if process.returncode is None:  # it may have no group of its own yet
        _send(process, signal.SIGKILL)
    await process.wait()
    stubs.kill(descendants)


def _send(process: Process, number: signal.Signals) -> None:
    """`Process.send_signal` may reap the child before asyncio's watcher sees its end."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(process.pid, number)
