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

from triton_openai.proxy.http_server.tls import HANDSHAKE_TIMEOUT_S

TAKEN_PER_TURN = 4  # of the event loop
REPORT_AGAIN_S = 0.1

logger = structlog.get_logger(__name__)


class Intake:
    """channel: carries the connections; closed here. reports: a socket to the launcher."""

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
        """Begins to take connections for a server that has started and has none."""
        self._server = server
        self._handshake_timeout_s = None if server.config.ssl is None else HANDSHAKE_TIMEOUT_S
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
            await loop.connect_accepted_socket(
                self._protocol,
                connection,
                ssl=self._server.config.ssl,
                ssl_handshake_timeout=self._handshake_timeout_s,
            )
        except OSError:  # the client has disconnected, or has failed the TLS handshake
            connection.close()

    def _end_connecting(self, connecting: asyncio.Task[None]) -> None:
        self._connecting.discard(connecting)
        self._report_soon()

    def _protocol(self) -> asyncio.Protocol:
        """Made as uvicorn makes it for a connection that it accepts itself."""
        config = self._server.config
        return config.http_protocol_class(  # type: ignore[call-arg]
            config=config,
            server_state=self._server.server_state,
            app_state=self._server.lifespan.state,
        )

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
