"""Closes a connection without losing the response. Used by `parsing_limits`.

The kernel answers bytes that arrive on a closed connection with a reset, and the client's kernel
then drops what its program has not read: the response that says what was wrong. So only our side
is closed after the response, and what still arrives is read and discarded, within limits.
"""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

LINGER_S = 5.0
LINGER_BYTES = 32_000_000


class LingeringClose(HttpToolsProtocol):
    _discarded: int | None = None  # bytes after the last response; None before it
    _end: asyncio.TimerHandle | None = None

    @property
    def is_lingering(self) -> bool:
        return self._discarded is not None

    def close_after_response(self) -> None:
        """The client may continue to send, for LINGER_S and LINGER_BYTES at most."""
        if self.is_lingering or self.transport.is_closing():
            return
        self._discarded = 0
        if self.transport.can_write_eof():  # TLS cannot close one side
            self.transport.write_eof()
        self.flow.resume_reading()
        self._end = self.loop.call_later(LINGER_S, self.transport.close)

    def discard(self, data: bytes) -> None:
        self._discarded = (self._discarded or 0) + len(data)
        if self._discarded > LINGER_BYTES:
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._end is not None:
            self._end.cancel()
        super().connection_lost(exc)

    def on_headers_complete(self) -> None:
        before = self.cycle
        super().on_headers_complete()
        if self.cycle is not None and self.cycle is not before:
            self.cycle.transport = _Unread(self)  # type: ignore[assignment]

    def on_message_complete(self) -> None:
        super().on_message_complete()
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is not None:
            cycle.transport = self.transport


class _Unread:
    """Stands in for the transport of a response while its request's body is incomplete."""

    def __init__(self, protocol: LingeringClose) -> None:
        self._transport: asyncio.Transport = protocol.transport
        self._protocol = protocol

    def write(self, data: bytes) -> None:
        self._transport.write(data)

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def close(self) -> None:
        self._protocol.close_after_response()
