"""Sends what a connection writes in one turn of the event loop in one system call.

uvicorn writes the head of a response and each part of its body apart, and uvloop sends each of them
at once. For a short answer, those calls were a third of the proxy's CPU. Used by `protocols`.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MOST_BYTES = 32_768  # that wait for the end of the turn


class JoinedWrites(HttpToolsProtocol):
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._joining = JoiningTransport(transport, self.loop)
        super().connection_made(self._joining)  # type: ignore[arg-type]

    def eof_received(self) -> bool | None:  # type: ignore[override]
        """Sends what waits: after a client's FIN the event loop may close the connection."""
        self._joining.flush()
        return super().eof_received()


class JoiningTransport:
    """A transport whose `write` keeps the bytes until the turn of the loop ends.

    All else is the wrapped transport's. Whatever closes the connection in order sends them first.
    """

    __slots__ = ("__weakref__", "_call_soon", "_parts", "_size", "_transport")

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._call_soon = loop.call_soon
        self._parts: list[bytes] = []
        self._size = 0

    def write(self, data: bytes) -> None:
        if not self._parts:
            self._call_soon(self.flush)
        self._parts.append(data)
        self._size += len(data)
        if self._size > MOST_BYTES:
            self.flush()

    def write_eof(self) -> None:
        self.flush()
        self._transport.write_eof()

    def close(self) -> None:
        self.flush()
        self._transport.close()

    def get_write_buffer_size(self) -> int:
        return self._transport.get_write_buffer_size() + self._size

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def flush(self) -> None:
        """Sends what waits now."""
        parts, self._parts, self._size = self._parts, [], 0
        if parts and not self._transport.is_closing():
            self._transport.write(parts[0] if len(parts) == 1 else b"".join(parts))
