"""One tritonserver process: start it until it is ready, wait for its end, stop it.

Its Python stubs are in its process group. Processes that MPI started have their own groups, and
are killed one by one. Called by processes.supervisor.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import time
from asyncio.subprocess import DEVNULL, Process
from dataclasses import dataclass
from pathlib import Path

import psutil

from proxy.operate.triton_server import lifeline, probe, run_folder, shm, stubs
from proxy.operate.triton_server.command import LOOPBACK, Place
from proxy.operate.triton_server.run_folder import RunFolder
from proxy.processes.errors import (
    LaunchError,
    ModelLoadingFailed,
    StartCrashed,
    exit_reason,
)

POLL_S = 0.05
# Of one core. Servers that wait use some: a start that uses less over its timeout stands still.
LEAST_CPU_SHARE = 0.02
PROGRESS_S = 900.0  # a start that makes progress may take so much longer than its timeout
# The proxy, or `drain`, has drained the streams before; those that still run are too late.
EXIT_TIMEOUT_S = 5
# Triton's Python backend, now and then, while the processes of several models start at once (2.51).
CRASH = "boost::interprocess::lock_exception"
MOST_LINES = 3
TAIL_BYTES = 100_000

_ERROR = re.compile(r'^E\d{4} [^\]]*\] "?(?:ERROR: )?(.*?)"?$')
_FAILED_LOAD = re.compile(r"failed to load '([^']+)' version \d+: (.*)")
_OTHERS = ("[libprotobuf ERROR", "bash: ", "error: ", "terminate called after")
# printed on every machine without a GPU
_NOISE = ("CudaDriverHelper", "failed to load all models")


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """What a start needs.

    start_timeout_s: the longest time without progress. progress_s: how much longer the whole start
    may take.
    """

    arguments: list[str]
    environment: dict[str, str]
    folder: RunFolder
    place: Place
    start_timeout_s: float
    progress_s: float = PROGRESS_S

    @property
    def longest_start_s(self) -> float:
        return self.start_timeout_s + self.progress_s


class TritonServer:
    """See processes.supervisor.Server. It is killed when the thread that started it ends."""

    def __init__(self, launch: Launch) -> None:
        self._launch = launch
        self._process: Process | None = None
        self._is_stopping = False

    @property
    def place(self) -> Place:
        return self._launch.place

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
            await self._until_ready(process)
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
        shm.sweep(self._launch.place.shm_prefix)

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
        timeout_s, began = self._launch.start_timeout_s, time.monotonic()
        progress = _Progress(process.pid, self._launch)
        while not await self._is_ready():
            if process.returncode is not None:
                raise self._failure(f"ended with {exit_reason(process.returncode)}")
            await asyncio.to_thread(progress.look)
            now = time.monotonic()
            if now - progress.seen_at >= timeout_s:
                within = f"{timeout_s:g} s after it last made progress (TRITON_START_TIMEOUT_S)"
            elif now - began >= self._launch.longest_start_s:
                more_s = f"{self._launch.progress_s:g} s"
                within = f"{now - began:.0f} s (TRITON_START_TIMEOUT_S and {more_s} for progress)"
            else:
                await asyncio.sleep(POLL_S)
                continue
            raise self._failure(f"was not ready within {within}; {progress.awaited()}")

    async def _is_ready(self) -> bool:
        """tritonserver opens its metrics port last: after gRPC, and after loading all models.

        If a model cannot be loaded, it exits before that (--exit-on-error=true is the default).
        """
        try:
            status, _ = await probe.get(LOOPBACK, self._launch.place.metrics_port, "/metrics")
        except OSError:
            return False
        return status == 200

    def _failure(self, what: str) -> LaunchError:
        log = self._launch.folder.log
        if failed := log_failed_load(log):
            model, reason = failed
            return ModelLoadingFailed(self._launch.folder.weights(model), f"{reason} (log: {log})")
        reasons = "; ".join(log_reasons(log)) or "the log gives no reason"
        kind = StartCrashed if CRASH in reasons else LaunchError
        return kind(f"tritonserver {what}: {reasons} (log: {log})")


class _Progress:
    """Whether a start moves: its processes use CPU time, or start others, or its log grows.

    seen_at: when it last did, on the clock of time.monotonic.
    """

    def __init__(self, lifeline: int, launch: Launch) -> None:
        self._lifeline = lifeline
        self._launch = launch
        self._looks_at = 0.0
        self._cpu_s = 0.0
        self._others = (0, 0)  # the number of processes, and of the log's bytes
        self.seen_at = time.monotonic()

    def look(self) -> None:
        """Reads all of /proc, so at most every second."""
        timeout_s, now = self._launch.start_timeout_s, time.monotonic()
        if now < self._looks_at:
            return
        self._looks_at = now + min(1.0, timeout_s / 10)
        spent = [cpu_s for each in self._processes() if (cpu_s := _cpu_s(each)) is not None]
        others = len(spent), self._launch.folder.log.stat().st_size
        if sum(spent) - self._cpu_s >= LEAST_CPU_SHARE * timeout_s or others != self._others:
            self.seen_at, self._cpu_s, self._others = now, sum(spent), others

    def awaited(self) -> str:
        """What the start waits for, and what else this machine does."""
        processes = ", ".join(
            f"{stubs.name(each)} ({cpu_s:.1f} s of CPU)"
            for each in self._processes()[1:]
            if (cpu_s := _cpu_s(each)) is not None
        )
        memory, load = psutil.virtual_memory(), " ".join(f"{each:.1f}" for each in os.getloadavg())
        return (
            f"it waits for the metrics port {self._launch.place.metrics_port}, which opens when "
            f"every model is loaded, and runs {processes or 'no process'}; this machine has a load "
            f"of {load} on {os.cpu_count()} cores, and {memory.available / 1e9:.1f} of "
            f"{memory.total / 1e9:.1f} GB of memory free"
        )

    def _processes(self) -> list[psutil.Process]:
        with contextlib.suppress(psutil.Error):
            return [psutil.Process(self._lifeline), *stubs.descendants(self._lifeline)]
        return []


def _cpu_s(process: psutil.Process) -> float | None:
    """With its children that have ended; None if it has ended itself."""
    try:
        return float(sum(process.cpu_times()[:4]))
    except psutil.Error:
        return None


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
    for each in descendants:
        with contextlib.suppress(psutil.Error):
            each.kill()


def _send(process: Process, number: signal.Signals) -> None:
    """`Process.send_signal` may reap the child before asyncio's watcher sees its end."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(process.pid, number)


def log_reasons(path: Path) -> list[str]:
    """The last distinct errors, one line each; failures to load models only, if there are any."""
    found = list(dict.fromkeys(_errors(_tail(path))))
    failed_loads = [line for line in found if line.startswith("failed to load")]
    return (failed_loads or found)[-MOST_LINES:]


def log_failed_load(path: Path) -> tuple[str, str] | None:
    """The Triton model that failed to load, and the reason."""
    for line in _errors(_tail(path)):
        if failed := _FAILED_LOAD.match(line):
            return failed[1], failed[2]
    return None


def _errors(text: str) -> list[str]:
    return [
        error_line
        for line in text.splitlines()
        if (error_line := _error(line)) and not any(noise in line for noise in _NOISE)
    ]


def _error(line: str) -> str | None:
    if error := _ERROR.match(line):
        return error[1].split("\\n")[0]  # the rest is a Python traceback, escaped
    return line if line.startswith(_OTHERS) else None


def _tail(path: Path) -> str:
    try:
        return path.read_bytes()[-TAIL_BYTES:].decode(errors="replace")
    except FileNotFoundError:
        return ""
