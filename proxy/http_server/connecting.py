"""Accepted sockets -> uvicorn's connections, with bounds on TLS handshakes.

Used by `tls_listener`.
"""

from __future__ import annotations

import asyncio
import socket

import structlog
import uvicorn

from triton_openai.proxy.http_server.tls import ReloadingTls

HANDSHAKE_TIMEOUT_S = 10.0
MOST_HANDSHAKES = 1_000  # of one process; OpenSSL keeps some 50 KB for each

logger = structlog.get_logger(__name__)


class Connecting:
    """Connections that are not open yet.

    Args:
        tls: None for plain HTTP.
        most: handshakes at once; one more ends the oldest, which has had the most time.
    """

    def __init__(
        self,
        server: uvicorn.Server,
        tls: ReloadingTls | None,
        *,
        timeout_s: float = HANDSHAKE_TIMEOUT_S,
        most: int = MOST_HANDSHAKES,
    ) -> None:
        self._server = server
        self._tls = tls
        self._timeout_s = timeout_s
        self._most = most
        self._tasks: dict[asyncio.Task[None], None] = {}  # in the order of their beginning

    def begin(self, connection: socket.socket) -> None:
        if self._tls is not None and len(self._tasks) >= self._most:
            oldest = next(iter(self._tasks))
            del self._tasks[oldest]
            oldest.cancel()
            logger.warning(
                "handshake cut off",
                reason="too many at once",
                most=self._most,
                advice="clients begin TLS and do not finish: a scan, or a load balancer's check "
                "that should use http",
            )
        task = asyncio.ensure_future(self._connect(connection))
        self._tasks[task] = None
        task.add_done_callback(lambda done: self._tasks.pop(done, None))

    async def _connect(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        loop = asyncio.get_running_loop()
        is_tls = self._tls is not None
        try:
            await loop.connect_accepted_socket(
                self._protocol,
                connection,
                ssl=None if self._tls is None else self._tls.context,
                ssl_handshake_timeout=self._timeout_s if is_tls else None,
            )
        except OSError:  # the client has disconnected, or its handshake has failed or is late
            connection.close()

    def _protocol(self) -> asyncio.Protocol:
        """Made as uvicorn makes it for a connection that it accepts itself."""
        config = self._server.config
        return config.http_protocol_class(  # type: ignore[call-arg]
            config=config,
            server_state=self._server.server_state,
            app_state=self._server.lifespan.state,
        )
