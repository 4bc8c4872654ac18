"""One tritonserver process: start it until it is ready, wait for its end, drain it, stop it.

Its Python stubs are in its process group. Processes that MPI started have their own groups, and
are killed one by one. Called by `supervisor` and `run`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import sys
import time
from asyncio.subprocess import DEVNULL, Process
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

import psutil

from proxy.domain.errors import LaunchError, ModelLoadingFailed
from proxy.operate.triton_server import lifeline, probe, shm
from proxy.operate.triton_server.launch import EXIT_TIMEOUT_S, LOOPBACK, Launch
from proxy.operate.triton_server.ranks import LLM_API_LAUNCHER
from proxy.triton.target import Target

READY_POLL_S = 0.05
# Of one core. Servers that wait use some (one with a vLLM engine 0.023, as measured): a start that
# uses less over its timeout stands still.
LEAST_CPU_SHARE = 0.05
# Triton's Python backend waits for ever for a stub that does not answer. Looks are a second apart,
# and counted, because the launcher may be paused together with the server.
STILL_LOOKS = 10
STILL_STARTS = 2  # in succession that are ended; the next may wait for a network, and has its time
STILL_CPU_S = LEAST_CPU_SHARE * STILL_LOOKS
WORKING = frozenset("RD")  # states of a thread, see proc(5): it waits for a core, or a disk
MOST_LINES = 3
TAIL_BYTES = 100_000
STUB_POLL_S = 0.25
ZOMBIE, STOPPED = "Z", "T"  # states in proc_pid_stat(5)
SHOW_POLL_S = 0.25
OLD_LOG_S = 7 * 86_400.0  # each pod has a host name of its own
STOPPED_S = 0.75  # how long a tokenizer or detokenizer may be stopped
# Proxies check Triton every half second; until then they may send more requests.
QUIET_S = 2.0
DRAIN_POLL_S = 0.25

# Triton's Python backend (2.51), where a stub dies while it starts, holding a mutex of the server.
CRASH = "boost::interprocess::lock_exception"
_ERROR = re.compile(r'^E\d{4} [^\]]*\] "?(?:ERROR: )?(.*?)"?$')
_FAILED_LOAD = re.compile(r"failed to load '([^']+)' version \d+: (.*)")
_OTHERS = ("[libprotobuf ERROR", "bash: ", "error: ", "terminate called after")
# printed on every machine without a GPU
_NOISE = ("CudaDriverHelper", "failed to load all models")
COMM = 15  # characters that the kernel stores of a name
# The processes between the lifeline and the stubs, see ranks. Open MPI 4 and 5 have links of the
# first name.
STARTERS = frozenset(
    name[:COMM] for name in ("mpirun", "orterun", "prterun", LLM_API_LAUNCHER, "tritonserver")
)
# The gauges of our engine model and of NVIDIA's C++ backend; as in docker/triton/wait_idle.py.
UNFINISHED = re.compile(
    r"^(?:engine_requests_unfinished\{[^}]*\}"
    r'|nv_trt_llm_request_metrics\{[^}]*request_type="active"[^}]*\}) (\S+)$',
    re.MULTILINE,
)


class StartCrashed(LaunchError):
    """The server crashed, or stood still, while it started: the next start may do better."""


class TritonServer:
    """It is killed when the thread that started it ends."""

    def __init__(self, launch: Launch, *, shows_log: bool = False) -> None:
        """shows_log: what it logs is also written to stdout, as containers' logs are read."""
        self._launch = launch
        self._shows_log = shows_log
        self._process: Process | None = None
        self._showing: asyncio.Task[None] | None = None
        self._is_stopping = False
        self._still_starts = 0

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
            self._still_starts = 0
        except BaseException:
            await self.stop(grace_s=0)
            raise

    async def wait(self) -> str:
        """Returns how it ended. If a process of one of its Python models dies, kills the server."""
        if self._process is None:
            raise RuntimeError("not started")
        process = self._process
        ending = asyncio.create_task(process.wait())
        stub_death = asyncio.create_task(_first_death(process.pid))
        try:
            await asyncio.wait((ending, stub_death), return_when=asyncio.FIRST_COMPLETED)
            if ending.done() or self._is_stopping:  # then its processes end in any order
                return _how_it_ended(await ending)
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
        if self._showing is not None:
            await self._showing
        self._process = self._showing = None
        shm.sweep(self._launch.shm_prefix)

    async def drain(self, timeout_s: float, say: Callable[[str], None]) -> None:
        """For a Triton that serves remote proxies: marks it as draining, and waits for streams.

        Returns when the engines have been idle for QUIET_S, or after the timeout.
        """
        from proxy.triton import drain_mark  # which imports grpc

        say("draining: running streams may end, proxies refuse new requests (once more to hurry)")
        region = shm.SHM / f"{self._launch.shm_prefix}draining"
        region.write_bytes(b"\0")
        target = Target(f"{LOOPBACK}:{self._launch.grpc_port}", secret=self._launch.secret)
        if reason := await drain_mark.set_mark(target, f"/{region.name}"):
            say(f"tritonserver refused the mark that it is draining: {reason}")
        if not await until_idle(self._launch.metrics_port, timeout_s):
            say(f"DRAIN_TIMEOUT_S is over: ending streams after {timeout_s:g} s")

    async def _spawn(self) -> Process:
        """The log of the previous start is kept as `.1`; hosts that are gone lose theirs."""
        log = self._launch.log
        for other in log.parent.glob("tritonserver.*.log*"):
            with contextlib.suppress(OSError):
                if time.time() - other.stat().st_mtime > OLD_LOG_S:
                    other.unlink()
        if log.exists():
            log.replace(log.with_suffix(".log.1"))
        with log.open("wb") as written:
            process = await asyncio.create_subprocess_exec(
                *lifeline.command(self._launch.arguments),
                cwd=self._launch.artifacts,
                env=self._launch.environment,
                stdin=DEVNULL,
                stdout=written,
                stderr=written,
            )
        if self._shows_log:
            self._showing = asyncio.create_task(_show(log.open("rb"), process))
        return process

    async def _until_ready(self, process: Process) -> None:
        timeout_s, began = self._launch.start_timeout_s, time.monotonic()
        progress = _Progress(process.pid, self._launch)
        while not await asyncio.to_thread(self._is_ready):
            if process.returncode is not None:
                raise self._failure(f"ended with {_how_it_ended(process.returncode)}")
            await asyncio.to_thread(progress.look)
            may_end_still = self._launch.ends_still_start and self._still_starts < STILL_STARTS
            if progress.still_looks >= STILL_LOOKS and may_end_still:
                self._still_starts += 1
                still = f"stood still for {STILL_LOOKS} s while it started; {progress.awaited()}"
                raise self._failure(still, StartCrashed)
            now = time.monotonic()
            if now - progress.seen_at >= timeout_s:
                within = f"{timeout_s:g} s after it last made progress (TRITON_START_TIMEOUT_S)"
            elif now - began >= timeout_s + self._launch.progress_s:
                more_s = f"{self._launch.progress_s:g} s"
                within = f"{now - began:.0f} s (TRITON_START_TIMEOUT_S and {more_s} for progress)"
            else:
                await asyncio.sleep(READY_POLL_S)
                continue
            raise self._failure(f"was not ready within {within}; {progress.awaited()}")

    def _is_ready(self) -> bool:
        """tritonserver opens its metrics port last: after gRPC, and after loading all models.

        If a model cannot be loaded, it exits before that (--exit-on-error=true is the default).
        """
        try:
            return probe.get(LOOPBACK, self._launch.metrics_port, "/metrics")[0] == probe.OK
        except OSError:
            return False

    def _failure(self, what: str, kind: type[LaunchError] = LaunchError) -> LaunchError:
        log = self._launch.log
        errors = log_errors(log.read_bytes()[-TAIL_BYTES:].decode(errors="replace"))
        for failed in filter(None, map(_FAILED_LOAD.match, errors)):
            # The engine folder of a Triton model such as `demo_engine`, or else the model's own.
            engine = self._launch.artifacts / failed[1].rpartition("_")[0] / "engine"
            folder = engine.resolve() if engine.exists() else self._launch.artifacts / failed[1]
            return ModelLoadingFailed(folder, f"{failed[2]} (log: {log})")
        reasons = "; ".join(errors[-MOST_LINES:]) or "the log gives no reason"
        kind = StartCrashed if CRASH in reasons else kind
        return kind(f"tritonserver {what}: {reasons} (log: {log})")


class _Progress:
    """Whether a start moves: its processes use CPU time, read files, or start others, or its log
    grows.

    seen_at: when it last did, on the clock of time.monotonic. still_looks: how many looks in
    succession found that it neither moved nor had a thread that went on waiting for a core or a
    disk.
    """

    def __init__(self, lifeline: int, launch: Launch) -> None:
        self._lifeline = lifeline
        self._launch = launch
        self._looks_at = 0.0
        self._cpu_s = 0.0
        self._others = (0, 0, 0)  # the number of processes, of bytes read, and of the log's
        self.seen_at = time.monotonic()
        self.still_looks = 0
        self._still_cpu_s = 0.0
        self._working = set[str]()  # threads that waited for a core or a disk at the last look

    def look(self) -> None:
        """Reads all of /proc, so at most every second."""
        timeout_s, now = self._launch.start_timeout_s, time.monotonic()
        if now < self._looks_at:
            return
        self._looks_at = now + min(1.0, timeout_s / 10)
        spent = self._cpu_s_by_name()
        cpu_s = sum(each for _, each in spent)
        read_bytes, working = _activity(self._lifeline)
        others = len(spent), read_bytes, self._launch.log.stat().st_size
        self.still_looks += 1
        has_moved = others != self._others or cpu_s - self._still_cpu_s >= STILL_CPU_S
        if has_moved or working & self._working:
            self.still_looks, self._still_cpu_s = 0, cpu_s
        self._working = working
        if cpu_s - self._cpu_s >= LEAST_CPU_SHARE * timeout_s or others != self._others:
            self.seen_at, self._cpu_s, self._others = now, cpu_s, others

    def awaited(self) -> str:
        """What the start waits for, and what else this machine does."""
        spent = [f"{name} ({cpu_s:.1f} s of CPU)" for name, cpu_s in self._cpu_s_by_name()[1:]]
        memory, load = psutil.virtual_memory(), " ".join(f"{each:.1f}" for each in os.getloadavg())
        return (
            f"it waits for the metrics port {self._launch.metrics_port}, which opens when every "
            f"model is loaded, and runs {', '.join(spent) or 'no process'}; this machine has a "
            f"load of {load} on {os.cpu_count()} cores, and {memory.available / 1e9:.1f} of "
            f"{memory.total / 1e9:.1f} GB of memory free"
        )

    def _cpu_s_by_name(self) -> list[tuple[str, float]]:
        """CPU seconds of each process, with its children that have ended; the lifeline first."""
        found = []
        with contextlib.suppress(psutil.Error):
            for process in [psutil.Process(self._lifeline), *_descendants(self._lifeline)]:
                with contextlib.suppress(psutil.Error):  # it has ended
                    found.append((_name(process), float(sum(process.cpu_times()[:4]))))
        return found


def _activity(lifeline: int) -> tuple[int, set[str]]:
    """How many bytes its processes read from disks, and the threads that are in WORKING."""
    read_bytes, working = 0, set[str]()
    for process in _descendants(lifeline):
        with contextlib.suppress(psutil.Error, OSError):  # it has ended
            read_bytes += process.io_counters().read_bytes
            for stat in Path(f"/proc/{process.pid}/task").glob("*/stat"):
                if stat.read_text().rpartition(")")[2].split()[0] in WORKING:
                    working.add(stat.parent.name)
    return read_bytes, working


async def _show(log: BinaryIO, process: Process) -> None:
    """Copies the log to stdout until the process has ended, or nobody reads stdout."""
    with log, contextlib.suppress(BrokenPipeError):
        while True:
            is_last = process.returncode is not None
            while read := log.read(TAIL_BYTES):
                sys.stdout.buffer.write(read)
                sys.stdout.buffer.flush()
                await asyncio.sleep(0)
            if is_last:
                return
            await asyncio.sleep(SHOW_POLL_S)


def _name(process: psutil.Process) -> str:
    """The Triton model of a stub; of any other process its program."""
    for part in process.cmdline():
        if part.endswith("/1/model.py"):
            return str(part.split("/")[-3])
    return str(process.name())


def _how_it_ended(returncode: int) -> str:
    return f"signal {-returncode}" if returncode < 0 else f"exit status {returncode}"


async def _end(process: Process, grace_s: float) -> None:
    if process.returncode is None and grace_s > 0:
        _send(process, signal.SIGTERM)
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(process.wait(), grace_s)
    descendants = _descendants(process.pid) if process.returncode is None else []
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


def _descendants(lifeline: int) -> list[psutil.Process]:
    """All descendants, including orphans."""
    try:
        return list(psutil.Process(lifeline).children(recursive=True))
    except psutil.Error:
        return []


async def _first_death(lifeline: int) -> str:
    """Returns when a process that tritonserver had started has died or stands still, with its
    description.

    Triton does not restart a stub that died. Seen with 2.51: its running streams hang forever and
    each new request fails, while the server reports that it is ready. So a dead stub counts as a
    dead server. So does a tokenizer or detokenizer that stands still, by SIGSTOP for example: after
    a second Triton gives its answers to other requests, see model_repository/detokenizer. An engine
    is decoupled, so its answers find their requests, and the proxy notices that its streams are
    silent.
    """
    stubs: dict[psutil.Process, str] | None = None
    stopped_polls: Counter[psutil.Process] = Counter()
    begun: dict[int, str] = {}  # another process may get the number of one that died
    while True:
        # No file descriptor is free, or a process ended while they were listed: the next poll sees.
        with contextlib.suppress(OSError, psutil.Error):
            stubs = _running(lifeline) if stubs is None else stubs
            for stub, name in stubs.items():
                state, began = _state(stub.pid)
                if state in ("", ZOMBIE) or begun.setdefault(stub.pid, began) != began:
                    return f"its process {stub.pid} died: {name}"
                is_stopped = state == STOPPED and "tokenizer" in name
                stopped_polls[stub] = stopped_polls[stub] + 1 if is_stopped else 0
                if stopped_polls[stub] * STUB_POLL_S > STOPPED_S:
                    return f"its process {stub.pid} stands still: {name}"
        await asyncio.sleep(STUB_POLL_S)


def _running(lifeline: int) -> dict[psutil.Process, str]:
    """The server's children, with their command lines. The server is the lifeline's first child.

    Under mpirun these are the ranks, and the processes that those start, down to the stubs.
    Children of other processes, such as a rank of the LLM API, are short-lived.
    """
    children = psutil.Process(lifeline).children()
    server = min(children, key=psutil.Process.create_time, default=None)  # the others are orphans
    return {} if server is None else dict(_below(server))


def _below(parent: psutil.Process) -> Iterator[tuple[psutil.Process, str]]:
    for child in parent.children():
        with contextlib.suppress(psutil.Error):  # it has ended
            yield child, " ".join(child.cmdline()[:2])
            if child.name()[:COMM] in STARTERS:
                yield from _below(child)


def _state(pid: int) -> tuple[str, str]:
    """The letter of a process' state, and when it began; empty if there is none. psutil reads the
    file three times for both, and each server is looked at four times a second.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text("latin-1").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return "", ""
    return fields[0], fields[19]


async def until_idle(metrics_port: int, at_most_s: float, *, quiet_s: float = QUIET_S) -> bool:
    """Whether Triton became idle in time. One that does not respond has ended: idle."""
    start = idle_since = time.monotonic()
    while (now := time.monotonic()) - start < at_most_s:
        try:
            _, exposition = await asyncio.to_thread(probe.get, LOOPBACK, metrics_port, "/metrics")
        except OSError:
            return True
        if any(map(float, UNFINISHED.findall(exposition))):
            idle_since = now
        elif now - idle_since >= quiet_s:
            return True
        await asyncio.sleep(DRAIN_POLL_S)
    return False


def log_errors(text: str) -> list[str]:
    """The distinct errors, one line each; failures to load models only, if there are any."""
    lines = dict.fromkeys(filter(None, map(_error, text.splitlines())))
    found = [line for line in lines if not any(noise in line for noise in _NOISE)]
    return [line for line in found if line.startswith("failed to load")] or found


def _error(line: str) -> str | None:
    if error := _ERROR.match(line):
        return error[1].split("\\n")[0]  # the rest is a Python traceback, escaped
    return line if line.startswith(_OTHERS) else None
