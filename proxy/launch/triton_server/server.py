"""One tritonserver process: start until ready, wait for its end, stop. Restarted by `supervisor`.

Its process group holds its Python stubs too. What MPI started has groups of its own, and is killed
one by one.
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
from triton_openai.proxy.processes.errors import LaunchError, ModelLoadingFailed, exit_reason

POLL_S = 0.05
# Streams were drained before, by the proxy or by `triton_drain`: what is left has outlasted that.
EXIT_TIMEOUT_S = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """Everything that one start needs."""

    arguments: list[str]
    environment: dict[str, str]
    folder: RunFolder
    ports: Ports
    shm_prefix: str
    start_timeout_s: float


class TritonServer:
    """Start it from a thread that outlives it: it is killed when the starting thread ends."""

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
        """Returns when every model is loaded and the server answers.

        Raises:
            LaunchError: it ended, or was not ready in time; the message has the log's own reason.
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
        """How it ended. When one of its Python models' processes dies, it is killed as a whole."""
        if self._process is None:
            raise RuntimeError("not started")
        process = self._process
        ending = asyncio.create_task(process.wait())
        stub_death = asyncio.create_task(stubs.first_death(process.pid))
        try:
            await asyncio.wait((ending, stub_death), return_when=asyncio.FIRST_COMPLETED)
            if ending.done() or self._is_stopping:  # then its processes go in any order
                return exit_reason(await ending)
            await _end(process, grace_s=0)
            return stub_death.result()
        finally:
            ending.cancel()
            stub_death.cancel()

    async def stop(self, grace_s: float = EXIT_TIMEOUT_S + 2) -> None:
        """SIGTERM, then SIGKILL to the whole group; no process and no region is left.

        A second call with a shorter grace ends the first one's wait.
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
        while not await self._answers():
            if process.returncode is not None:
                raise self._failure(f"ended with {exit_reason(process.returncode)}")
            await asyncio.sleep(POLL_S)

    async def _answers(self) -> bool:
        """tritonserver opens its metrics port last: after gRPC, and after all models are loaded.

        One that cannot load a model ends before (its default, --exit-on-error=true).
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
        reasons = "; ".join(server_log.reasons(log)) or "it gives no reason"
        return LaunchError(f"tritonserver {what}: {reasons} (log: {log})")


async def _end(process: Process, grace_s: float) -> None:
    if process.returncode is None and grace_s > 0:
        _send(process, signal.SIGTERM)
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(process.wait(), grace_s)
    below = stubs.descendants(process.pid) if process.returncode is None else []
    with contextlib.suppress(ProcessLookupError):  # its stubs, too
        os.killpg(process.pid, signal.SIGKILL)
    if process.returncode is None:  # it may have no group of its own yet
        _send(process, signal.SIGKILL)
    await process.wait()
    stubs.kill(below)


def _send(process: Process, number: signal.Signals) -> None:
    """Not `Process.send_signal`, which may reap the child before asyncio's watcher sees its end."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(process.pid, number)
