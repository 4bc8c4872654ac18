"""A stop that cuts nobody off: neither who has connected already nor who has a WebSocket."""

from __future__ import annotations

import asyncio
import select
import socket

import uvicorn
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

QUEUE_S = 1.0  # at most: as long as others call there is always a next one
REQUEST_S = 0.05  # from a connection to its request


class DrainingServer(uvicorn.Server):
    """Answers whoever has connected when it is told to stop: closing the socket resets them."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """`sockets` are one, several times."""
        if sockets:
            await take_who_waits(sockets[0])
        for server in self.servers:
            server.close()
        await asyncio.sleep(REQUEST_S)
        await super().shutdown(sockets)


async def take_who_waits(listening: socket.socket) -> None:
    """Until the event loop has accepted all that the kernel has connected, or QUEUE_S are over."""
    loop, queue = asyncio.get_running_loop(), select.poll()
    queue.register(listening, select.POLLIN)
    end = loop.time() + QUEUE_S
    while queue.poll(0) and loop.time() < end:  # noqa: ASYNC110  (nothing else tells)
        await asyncio.sleep(0)


class DrainingWebSocket(WebSocketsSansIOProtocol):
    """Ends by itself when the server stops, as HTTP responses do.

    The application closes it, once its requests have ended (api.openai.socket).
    """

    def shutdown(self) -> None:
        """Called by uvicorn, which would close it at once; then it waits for the drain's time."""
        if not self.handshake_complete or self.close_sent:
            super().shutdown()
