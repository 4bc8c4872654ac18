"""Accepts the connections of a proxy that serves TLS. Used by `uvicorn_server`.

uvicorn's own listener waits 60 seconds for each handshake, and for any number of them.
"""

from __future__ import annotations

import asyncio
import socket

import structlog
import uvicorn

from triton_openai.proxy.http_server.connecting import (
    HANDSHAKE_TIMEOUT_S,
    MOST_HANDSHAKES,
    Connecting,
)
from triton_openai.proxy.http_server.tls import ReloadingTls

TAKEN_PER_TURN = 4  # of the event loop
AGAIN_S = 1.0  # when the process has no free file descriptor

logger = structlog.get_logger(__name__)


class TlsListener:
    """listening: bound; closed here."""

    def __init__(
        self,
        listening: socket.socket,
        *,
        timeout_s: float = HANDSHAKE_TIMEOUT_S,
        most: int = MOST_HANDSHAKES,
    ) -> None:
        self._listening = listening
        self._timeout_s = timeout_s
        self._most = most
        self._again: asyncio.TimerHandle | None = None
        self._is_open = False

    def open(self, server: uvicorn.Server, tls: ReloadingTls | None) -> None:
        """Begins to accept for a server that has started."""
        self._connecting = Connecting(server, tls, timeout_s=self._timeout_s, most=self._most)
        self._listening.setblocking(False)
        self._listening.listen(server.config.backlog)
        self._is_open = True
        self._follow()

    def close(self) -> None:
        """Accepts the connections that wait, and stops."""
        if not self._is_open:
            return
        for _ in range(self._most):
            if not self._accept_one():
                break
        self._is_open = False
        if self._again is not None:
            self._again.cancel()
        asyncio.get_running_loop().remove_reader(self._listening)
        self._listening.close()

    def _follow(self) -> None:
        self._again = None
        asyncio.get_running_loop().add_reader(self._listening, self._accept)

    def _accept(self) -> None:
        for _ in range(TAKEN_PER_TURN):
            if not self._accept_one():
                break

    def _accept_one(self) -> bool:
        """False if no connection waits, or none can be taken now."""
        try:
            connection, _ = self._listening.accept()
        except (BlockingIOError, ConnectionError, InterruptedError):
            return False
        except OSError as error:
            self._pause(error)
            return False
        self._connecting.begin(connection)
        return True

    def _pause(self, error: OSError) -> None:
        if self._again is None:
            logger.warning(
                "connections wait",
                reason=str(error),
                advice="raise the limit of open files (ulimit -n, LimitNOFILE), or run more "
                "proxies",
            )
            loop = asyncio.get_running_loop()
            loop.remove_reader(self._listening)
            self._again = loop.call_later(AGAIN_S, self._follow)
