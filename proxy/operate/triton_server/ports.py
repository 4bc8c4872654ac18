"""TCP ports: binding, and finding the process that holds one."""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from typing import TYPE_CHECKING

from proxy.domain.errors import LaunchError

if TYPE_CHECKING:
    import psutil

# Per connection. The kernel's own limit is megabytes, which a client that does not read would hold.
SEND_BUFFER_BYTES = 262_144


def bind(host: str, port: int, setting: str) -> socket.socket:
    """A bound socket that does not listen yet, so clients are refused until the server listens.

    Raises:
        LaunchError: the host is unknown or the port is taken.
    """
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except socket.gaierror as error:
        raise LaunchError(f"HOST={host} cannot be resolved: {error.strerror}") from None
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
    try:
        sock.bind(address)
    except OSError as error:
        sock.close()
        reason = f"{os.strerror(error.errno or 0)}{_holder(port)}"
        raise LaunchError(
            f"{setting}={port}: cannot listen on {host}:{port}: {reason}; set {setting} to a free "
            "port"
        ) from None
    return sock


def _holder(port: int) -> str:
    """` (held by name, pid 12)`, if this user may see the process."""
    import psutil

    with suppress(psutil.Error):
        if (process := listener(port)) is not None:
            return f" (held by {process.name()}, pid {process.pid})"
    return ""


def listener(port: int) -> psutil.Process | None:
    """The process that listens there, if this user may see it. Raises psutil.Error."""
    import psutil

    for connection in psutil.net_connections(kind="tcp"):
        if connection.status != psutil.CONN_LISTEN or not connection.pid:
            continue
        if connection.laddr and connection.laddr[1] == port:
            return psutil.Process(connection.pid)
    return None
