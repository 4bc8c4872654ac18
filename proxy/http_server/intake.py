"""Takes the connections that the launcher hands to a worker. See `handover`, the other end.

The worker reports how many connections it has taken so far, how many are open, and whether it
takes more, as a line of three numbers. Each report replaces the earlier ones.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any

import structlog
import uvicorn

from triton_openai.proxy.http_server.connecting import Connecting
from triton_openai.proxy.http_server.tls import ReloadingTls

TAKEN_PER_TURN = 4  # of the event loop
REPORT_AGAIN_S = 0.1

logger = structlog.get_logger(__name__)


class Intake:
    """channel: carries the connections; closed here. reports: a socket to the launcher."""

    def __init__(self, channel: socket.socket, reports: socket.socket) -> None:
        self._channel = channel
        self._reports = reports
        self._open = _WatchedSet(self._report_soon)
        self._taken = 0
        self._is_taking = False
        self._will_report = False
        self._reported = b""

    def open(self, server: uvicorn.Server, tls: ReloadingTls | None) -> None:
        """Begins to take connections for a server that has started and has none."""
        self._connecting = Connecting(server, tls, changed=self._report_soon)
        server.server_state.connections = self._open
        self._channel.setblocking(False)
        self._reports.setblocking(False)
        asyncio.get_running_loop().add_reader(self._channel, self._take)
        self._is_taking = True

    def close(self) -> None:
        """Takes the connections that have been handed over, and stops."""
        while self._is_taking and self._take_one():
            pass
        self._stop()

    def _take(self) -> None:
        for _ in range(TAKEN_PER_TURN):
            if not self._take_one():
                break
        self._report()

    def _take_one(self) -> bool:
        """False if no connection waits, or the launcher has closed the channel."""
        try:
            handed, descriptors, _, _ = socket.recv_fds(
                self._channel, 1, 1, socket.MSG_CMSG_CLOEXEC
            )
        except BlockingIOError:
            return False
        if not handed:
            self._stop()
            return False
        self._taken += 1
        if not descriptors:
            logger.warning(
                "connection lost: too many open files",
                advice="raise the limit of open files (ulimit -n, LimitNOFILE), or run more "
                "proxies",
            )
        for descriptor in descriptors:
            self._connecting.begin(socket.socket(fileno=descriptor))
        return True

    def _stop(self) -> None:
        """Closes the channel; connections in it then belong to the launcher alone."""
        if self._is_taking:
            self._is_taking = False
            asyncio.get_running_loop().remove_reader(self._channel)
            self._channel.close()
            self._report()

    def _report_soon(self) -> None:
        if not self._will_report:
            self._will_report = True
            asyncio.get_running_loop().call_soon(self._report)

    def _report(self) -> None:
        self._will_report = False
        count = len(self._open) + len(self._connecting)
        report = b"%d %d %d\n" % (self._taken, count, self._is_taking)
        if report == self._reported:
            return
        try:
            self._reports.send(report)
            self._reported = report
        except BlockingIOError:  # the launcher is late in reading reports
            self._will_report = True
            asyncio.get_running_loop().call_later(REPORT_AGAIN_S, self._report)
        except OSError:
            pass  # the launcher has ended, and this process ends with it


class _WatchedSet(set[Any]):
    """uvicorn's protocols, including WebSockets, add and remove themselves."""

    def __init__(self, changed: Callable[[], None]) -> None:
        super().__init__()
        self._changed = changed

    def add(self, protocol: Any) -> None:
        super().add(protocol)
        self._changed()

    def discard(self, protocol: Any) -> None:
        super().discard(protocol)
        self._changed()

    def remove(self, protocol: Any) -> None:
        super().remove(protocol)
        self._changed()
