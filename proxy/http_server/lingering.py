"""A close that does not cost the client its answer. For `connections`.

The kernel answers what arrives on a closed connection with a reset, at which the client's kernel
drops what its program has not read yet: the very answer that says what was wrong. So our side is
closed behind the answer, and what still comes is read and thrown away, within bounds.
"""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

LINGER_S = 5.0
LINGER_BYTES = 32_000_000


class LingeringClose(HttpToolsProtocol):
    _discarded: int | None = None  # bytes behind the last answer; None before it
    _end: asyncio.TimerHandle | None = None

    @property
    def is_lingering(self) -> bool:
        return self._discarded is not None

    def close_behind_answer(self) -> None:
        """The client may send on until it has seen the end, for LINGER_S and LINGER_BYTES."""
        if self.is_lingering or self.transport.is_closing():
            return
        self._discarded = 0
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
    """What a response is written to as long as its request's body has not come to its end."""

    def __init__(self, protocol: LingeringClose) -> None:
        self._transport: asyncio.Transport = protocol.transport
        self._protocol = protocol

    def write(self, data: bytes) -> None:
        self._transport.write(data)

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def close(self) -> None:
        self._protocol.close_behind_answer()
