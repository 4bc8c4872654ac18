"""A worker's connections, which the launcher accepts and hands over. See `handover`.

The worker reports how many connections it has taken so far, how many are open, and whether it
takes more, as one line of three numbers. A report replaces those before it.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any

import structlog
import uvicorn

TAKEN_A_TURN = 4  # of the event loop
REPORT_AGAIN_S = 0.1

logger = structlog.get_logger(__name__)


class Intake:
    """channel: brings the connections. reports: a socket to the launcher. Owns the first."""

    def __init__(self, channel: socket.socket, reports: socket.socket) -> None:
        self._channel = channel
        self._reports = reports
        self._open = _WatchedSet(self._report_soon)
        self._connecting: set[asyncio.Task[None]] = set()
        self._taken = 0
        self._is_taking = False
        self._will_report = False
        self._reported = b""

    def open(self, server: uvicorn.Server) -> None:
        """Begins to take connections for a server that has started and has none yet."""
        self._server = server
        server.server_state.connections = self._open
        self._channel.setblocking(False)
        self._reports.setblocking(False)
        asyncio.get_running_loop().add_reader(self._channel, self._take)
        self._is_taking = True

    def close(self) -> None:
        """Takes the connections that are handed over already, and no more."""
        while self._is_taking and self._take_one():
            pass
        self._stop()

    def _take(self) -> None:
        for _ in range(TAKEN_A_TURN):
            if not self._take_one():
                break
        self._report()

    def _take_one(self) -> bool:
        """False where nothing waits, or the launcher hands over no more."""
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
            logger.warning("connection lost: too many open files")
        for descriptor in descriptors:
            connecting = asyncio.ensure_future(self._connect(socket.socket(fileno=descriptor)))
            self._connecting.add(connecting)
            connecting.add_done_callback(self._end_connecting)
        return True

    async def _connect(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        loop = asyncio.get_running_loop()
        try:
            await loop.connect_accepted_socket(self._protocol, connection)
        except OSError:  # the client has gone
            connection.close()

    def _end_connecting(self, connecting: asyncio.Task[None]) -> None:
        self._connecting.discard(connecting)
        self._report_soon()

    def _protocol(self) -> asyncio.Protocol:
        """As uvicorn makes it for a connection that it accepts."""
        config = self._server.config
        return config.http_protocol_class(  # type: ignore[call-arg]
            config=config,
            server_state=self._server.server_state,
            app_state=self._server.lifespan.state,
        )

    def _stop(self) -> None:
        """Closes the channel, so that what it still holds is nobody's but the launcher's."""
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
        except BlockingIOError:  # the launcher has not read many reports
            self._will_report = True
            asyncio.get_running_loop().call_later(REPORT_AGAIN_S, self._report)
        except OSError:
            pass  # it has ended, and ends this process


class _WatchedSet(set[Any]):
    """uvicorn's protocols enter it and leave it by themselves, WebSockets among them."""

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
