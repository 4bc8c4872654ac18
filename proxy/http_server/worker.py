"""One of several processes of the proxy, which `workers` starts.

usage: python -m triton_openai.proxy.http_server.worker CHANNEL CONTROL

CHANNEL and CONTROL are numbers of file descriptors.

The orders come over CONTROL as JSON; the process's id goes back when it has started, and then
the reports of `intake`. Connections come over CHANNEL.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
from functools import partial
from pathlib import Path

from triton_openai.proxy.http_server import front
from triton_openai.proxy.http_server.intake import Intake
from triton_openai.proxy.processes.errors import LaunchError
from triton_openai.proxy.processes.signals import stop_on_signals
from triton_openai.proxy.settings import Settings


def main(channel: socket.socket, control: socket.socket) -> None:
    import uvloop

    with control.makefile("r", encoding="utf-8") as orders:
        told = json.load(orders)
    uvloop.run(_run(Settings(**told["settings"]), channel, control, Path(told["shared"])))


async def _run(
    settings: Settings, channel: socket.socket, control: socket.socket, shared: Path
) -> None:
    with stop_on_signals() as stop:
        await front.run(
            settings,
            Intake(channel, reports=control),
            stop=stop,
            say=lambda _: None,  # the launcher says it
            has_started=partial(tell, control),
            shared=shared,
        )


def taken_over(number: str) -> socket.socket:
    """The launcher's socket, which this process passes on to none of its children."""
    sock = socket.socket(fileno=int(number))
    sock.set_inheritable(False)
    return sock


def tell(control: socket.socket) -> None:
    """That it has started. Nobody hears it where a stop was asked for meanwhile."""
    with contextlib.suppress(BrokenPipeError):
        control.sendall(f"{os.getpid()}\n".encode())


if __name__ == "__main__":
    with contextlib.closing(taken_over(sys.argv[2])) as control:
        try:
            main(taken_over(sys.argv[1]), control)
        except LaunchError as error:
            sys.exit(f"error: {error}")
