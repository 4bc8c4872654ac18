"""Runs the proxy as several processes. Called by launch.run.

`handover` distributes the connections. The workers share metrics and the concurrency limit
through a folder, and the limits of callers and the queues of models through the ledger and the
scheduler that this process owns. A worker that dies is restarted; a stop lets all of them drain.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
import tempfile
from asyncio.subprocess import Process
from collections.abc import Callable, Iterable
from pathlib import Path

from triton_openai.proxy import configured_scheduling
from triton_openai.proxy.http_server.handover import Handover
from triton_openai.proxy.ledger import parent_ledger
from triton_openai.proxy.ledger.in_process import InProcessLedger
from triton_openai.proxy.processes import lifeline
from triton_openai.proxy.processes.errors import LaunchError, exit_reason
from triton_openai.proxy.processes.hangup import on_hangup
from triton_openai.proxy.processes.signals import Stop
from triton_openai.proxy.processes.supervisor import Supervisor
from triton_openai.proxy.scheduling import parent_queues
from triton_openai.proxy.settings import Settings
from triton_openai.proxy.telemetry import worker_slot

START_TIMEOUT_S = 60.0
STARTED_BYTES = 100  # of a worker's process id
HURRY_S = 5.0  # longer than `server` takes
Say = Callable[[str], None]


async def run(settings: Settings, sock: socket.socket, *, stop: Stop, say: Say) -> None:
    """Serves until a stop; then waits for the streams, for `drain_timeout_s` at most.

    A second signal cuts this short.

    Raises:
        LaunchError: a worker did not start.
    """
    with tempfile.TemporaryDirectory(prefix="triton-openai-workers-") as folder:
        handover = Handover(sock, say)
        servers = [
            Worker(settings, handover, Path(folder), slot) for slot in range(settings.workers)
        ]
        supervisors = [
            Supervisor(server, name=f"worker {number}", say=say)
            for number, server in enumerate(servers, start=1)
        ]
        async with (
            parent_ledger.served(InProcessLedger(), Path(folder)),
            parent_queues.served(configured_scheduling.limits(settings), Path(folder)),
        ):
            with on_hangup(lambda: _hang_up(servers), stop):
                await _supervise(supervisors, handover, settings, stop, say)


def _hang_up(servers: Iterable[Worker]) -> None:
    for server in servers:
        server.hang_up()


async def _supervise(
    supervisors: list[Supervisor], handover: Handover, settings: Settings, stop: Stop, say: Say
) -> None:
    try:
        if await stop.unless_requested(_start(supervisors)):
            await stop.requested.wait()
    finally:
        say("stopping: running streams may end (once more to hurry)")
        await handover.close()
        grace_s = settings.drain_timeout_s + HURRY_S
        if not await stop.unless_hurried(_stop(supervisors, grace_s)):
            say("hurrying")
            await _stop(supervisors, HURRY_S)


async def _start(supervisors: list[Supervisor]) -> None:
    await asyncio.gather(*(supervisor.start() for supervisor in supervisors))


async def _stop(supervisors: list[Supervisor], grace_s: float) -> None:
    await asyncio.gather(*(supervisor.stop(grace_s=grace_s) for supervisor in supervisors))


class Worker:
    """See processes.supervisor.Server. shared: the folder that all workers share. slot: its place
    among them, which the next process takes when this one dies.
    """

    def __init__(self, settings: Settings, handover: Handover, shared: Path, slot: int) -> None:
        self._settings = settings
        self._handover = handover
        self._shared = shared
        self._slot = slot
        self._process: Process | None = None
        self._pid: int | None = None
        self._served: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Returns when the worker takes connections.

        Raises:
            LaunchError: the proxy is stopping, or the worker ended or did not start in time.
        """
        if self._handover.is_closed:
            raise LaunchError("the proxy is stopping")
        (ours, its), (channel, its_channel) = socket.socketpair(), socket.socketpair()
        with its, its_channel:
            self._process = await self._spawn(its_channel, its)
        with contextlib.ExitStack() as unless_started:
            unless_started.enter_context(ours)
            unless_started.enter_context(channel)
            pid = await self._started(ours)
            if not pid:
                await self.stop(grace_s=0)
                raise LaunchError("a worker of the proxy did not start: its log above says why")
            unless_started.pop_all()
        self._pid = int(pid)
        self._served = asyncio.create_task(self._serve(channel, ours))

    async def wait(self) -> str:
        if self._process is None:
            raise RuntimeError("not started")
        how = exit_reason(await self._process.wait())
        self._forget()
        return how

    async def stop(self, grace_s: float = HURRY_S) -> None:
        """Sends SIGTERM, which drains the worker and hurries it the second time; then SIGKILL."""
        process = self._process
        if process is None:
            return
        if process.returncode is None and grace_s > 0:
            _send(process.pid, signal.SIGTERM)
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(process.wait(), grace_s)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        if process.returncode is None:
            _send(process.pid, signal.SIGKILL)
        await process.wait()
        self._forget()

    def hang_up(self) -> None:
        """Has the worker read models.yaml again. One that is starting reads it anyway."""
        if self._pid is not None:
            _send(self._pid, signal.SIGHUP)

    async def _started(self, control: socket.socket) -> bytes:
        """The process id that a worker sends when it has started; empty if it did not in time."""
        control.setblocking(False)
        loop = asyncio.get_running_loop()
        try:
            await loop.sock_sendall(control, self._orders())
            control.shutdown(socket.SHUT_WR)
            answer = await asyncio.wait_for(loop.sock_recv(control, STARTED_BYTES), START_TIMEOUT_S)
        except (asyncio.TimeoutError, ConnectionError):
            return b""
        return answer.partition(b"\n")[0]

    async def _serve(self, channel: socket.socket, reports: socket.socket) -> None:
        with reports:
            await self._handover.serve(channel, reports)

    async def _spawn(self, channel: socket.socket, control: socket.socket) -> Process:
        inherited = (channel.fileno(), control.fileno())
        arguments = [
            sys.executable,
            "-m",
            "triton_openai.proxy.http_server.worker",
            *map(str, inherited),
        ]
        return await asyncio.create_subprocess_exec(
            *lifeline.command(arguments),
            env={**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(self._shared)},
            pass_fds=inherited,
        )

    def _orders(self) -> bytes:
        settings = self._settings.model_dump(mode="json", exclude_unset=True)
        orders = {"settings": settings, "shared": str(self._shared), "slot": self._slot}
        return json.dumps(orders).encode()

    def _forget(self) -> None:
        """Removes its gauges from the metrics; its counters stay."""
        worker_slot.vacate(self._slot, self._shared)
        self._pid = None


def _send(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
