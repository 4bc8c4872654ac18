"""Stops without resetting clients that have just connected or hold a WebSocket."""

from __future__ import annotations

import asyncio
import select
import socket

import uvicorn
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

QUEUE_S = 1.0  # at most, because new clients may keep connecting
REQUEST_S = 0.05  # from the accepting of a connection to its request


class DrainingServer(uvicorn.Server):
    """Accepts waiting connections before it stops, since closing the socket resets them."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """sockets: duplicates of one socket."""
        if sockets:
            await accept_waiting(sockets[0])
        for server in self.servers:
            server.close()
        await asyncio.sleep(REQUEST_S)
        await super().shutdown(sockets)


async def accept_waiting(listening: socket.socket) -> None:
    """Returns when the event loop has accepted all waiting connections, or after QUEUE_S."""
    loop, queue = asyncio.get_running_loop(), select.poll()
    queue.register(listening, select.POLLIN)
    end = loop.time() + QUEUE_S
    while queue.poll(0) and loop.time() < end:  # noqa: ASYNC110  (there is no event)
        await asyncio.sleep(0)


class DrainingWebSocket(WebSocketsSansIOProtocol):
    """Stays open when the server stops, as HTTP responses do.

    The application closes it when its requests have ended (api.openai.socket).
    """

    def shutdown(self) -> None:
        """Called by uvicorn, which would close it at once; uvicorn waits for it while it drains."""
        if not self.handshake_complete or self.close_sent:
            super().shutdown()
