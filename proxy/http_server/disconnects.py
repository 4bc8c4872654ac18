"""Tells clients that have disconnected from those that only closed their sending side.

Both have sent a FIN, but only a disconnected client answers further bytes with a reset. So the
connection is probed with interim responses, which every HTTP/1.1 client ignores (RFC 9110, 15.2).
HTTP/1.0 lacks those: its clients get the first bytes of the response, which are the same in all
responses, one by one. A client that sends a FIN during a response counts as disconnected, because
nothing else can be sent then. Used by `protocols`.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

INTERIM = STATUS_LINE[100] + b"\r\n"
FIRST_PAUSE_S = 0.01
LONGEST_PAUSE_S = 1.0  # with some load balancers the reset comes late
BEGINNING = b"HTTP/1.1 "  # of every response
PAUSE_FACTOR = 4  # nine bytes last for fourteen minutes


class DisconnectDetection(HttpToolsProtocol):
    # the request whose response is due; `cycle` is the last one, which may wait behind it
    _answered: RequestResponseCycle

    def eof_received(self) -> bool | None:  # type: ignore[override]
        """Handles the client's FIN. Returns True to keep the connection open: a complete request
        awaits its response, and the connection is probed until then. With TLS it cannot stay open.
        """
        last = self.cycle
        if last is None or last.more_body or last.response_started or self._has_tls():
            return None
        has_interim = last.scope["http_version"] == "1.1"
        if not has_interim and last is not self._answered:
            return None
        last.keep_alive = False
        if has_interim:
            self._probe(FIRST_PAUSE_S)
        else:
            PartlySentHead(last, self.transport, self.loop).probe(FIRST_PAUSE_S)
        return True

    def _has_tls(self) -> bool:
        return self.transport.get_extra_info("sslcontext") is not None

    def connection_lost(self, exc: Exception | None) -> None:
        """Also notifies the request that is being answered; uvicorn notifies the last one only."""
        super().connection_lost(exc)
        if self.cycle is not None and not self._answered.response_complete:
            self._answered.disconnected = True
            self._answered.message_event.set()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._answered = cycle
        super()._start_asgi_task(cycle, app)

    def _probe(self, pause_s: float) -> None:
        """Sends interim responses until the response begins, or a reset ends the connection."""
        if self.transport.is_closing():
            return
        if not self._answered.response_started:
            self.transport.write(INTERIM)
        self.loop.call_later(pause_s, self._probe, min(2 * pause_s, LONGEST_PAUSE_S))


class PartlySentHead:
    """Stands in for the transport of a response whose first bytes may already be sent."""

    def __init__(
        self,
        cycle: RequestResponseCycle,
        transport: asyncio.Transport,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._cycle = cycle
        self._transport = transport
        self._loop = loop
        self._sent = 0
        cycle.transport = self  # type: ignore[assignment]

    def probe(self, pause_s: float) -> None:
        """Sends the next byte, and later the one after it."""
        is_over = self._transport.is_closing() or self._cycle.response_started
        if is_over or self._sent == len(BEGINNING):
            return
        self._transport.write(BEGINNING[self._sent : self._sent + 1])
        self._sent += 1
        self._loop.call_later(pause_s, self.probe, PAUSE_FACTOR * pause_s)

    def write(self, data: bytes) -> None:
        """Writes the rest of the response head; the body goes directly to the transport."""
        self._cycle.transport = self._transport
        self._transport.write(data[self._sent :])

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def close(self) -> None:
        self._transport.close()
