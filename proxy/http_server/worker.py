"""One of several processes of the proxy. Started by `workers`.

usage: python -m triton_openai.proxy.http_server.worker CHANNEL CONTROL

Both are file descriptors. CONTROL brings the settings as JSON; the process writes its id to it
when it has started, and then the reports of `intake`. CHANNEL brings the connections.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
from functools import partial
from pathlib import Path

from triton_openai.proxy.http_server import uvicorn_server
from triton_openai.proxy.http_server.intake import Intake
from triton_openai.proxy.processes.errors import LaunchError
from triton_openai.proxy.processes.signals import stop_on_signals
from triton_openai.proxy.settings import Settings
from triton_openai.proxy.telemetry import worker_slot


def main(channel: socket.socket, control: socket.socket) -> None:
    import uvloop

    with control.makefile("r", encoding="utf-8") as orders:
        given = json.load(orders)
    shared = Path(given["shared"])
    with worker_slot.occupy(given["slot"], shared):
        uvloop.run(_run(Settings(**given["settings"]), channel, control, shared))


async def _run(
    settings: Settings, channel: socket.socket, control: socket.socket, shared: Path
) -> None:
    with stop_on_signals() as stop:
        await uvicorn_server.run(
            settings,
            Intake(channel, reports=control),
            stop=stop,
            say=lambda _: None,  # the launcher reports it
            has_started=partial(report_started, control),
            shared=shared,
        )


def inherited(number: str) -> socket.socket:
    """A socket from the launcher, which children of this process do not inherit."""
    sock = socket.socket(fileno=int(number))
    sock.set_inheritable(False)
    return sock


def report_started(control: socket.socket) -> None:
    """The launcher may have closed the socket, if it was stopped meanwhile."""
    with contextlib.suppress(BrokenPipeError):
        control.sendall(f"{os.getpid()}\n".encode())


if __name__ == "__main__":
    with contextlib.closing(inherited(sys.argv[2])) as control:
        try:
            main(inherited(sys.argv[1]), control)
        except LaunchError as error:
            sys.exit(f"error: {error}")
