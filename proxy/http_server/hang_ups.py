"""Who has left, and who has only closed the sending side behind a request. For `connections`.

Both have sent a FIN. Only what is sent to those who have left comes back as a reset, so they are
sent interim responses, which every client of HTTP/1.1 passes over (RFC 9110, 15.2). HTTP/1.0 does
not know those; its clients get the answer's first bytes, which are the same for all answers, one
by one. Amid an answer nothing can be sent beside it: who closes then has left.
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
LONGEST_PAUSE_S = 1.0  # behind some load balancers the first reset is not theirs
BEGINNING = b"HTTP/1.1 "  # of every answer
LONGER = 4  # each pause than the one before: nine bytes are enough for fourteen minutes


class NoticedHangUps(HttpToolsProtocol):
    _answered: RequestResponseCycle  # `cycle` is the last one, which may wait behind it

    def eof_received(self) -> bool | None:  # type: ignore[override]
        """Whether the connection stays open."""
        last = self.cycle
        if last is None or last.more_body or last.response_started:
            return None
        is_new = last.scope["http_version"] == "1.1"
        if not is_new and last is not self._answered:
            return None
        last.keep_alive = False
        if is_new:
            self._probe(FIRST_PAUSE_S)
        else:
            BegunAnswer(last, self.transport, self.loop).probe(FIRST_PAUSE_S)
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        """uvicorn tells only the last of several requests."""
        super().connection_lost(exc)
        if self.cycle is not None and not self._answered.response_complete:
            self._answered.disconnected = True
            self._answered.message_event.set()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._answered = cycle
        super()._start_asgi_task(cycle, app)

    def _probe(self, pause_s: float) -> None:
        """One that comes to a reset connection ends it."""
        if self.transport.is_closing():
            return
        if not self._answered.response_started:
            self.transport.write(INTERIM)
        self.loop.call_later(pause_s, self._probe, min(2 * pause_s, LONGEST_PAUSE_S))


class BegunAnswer:
    """What an answer is written to whose first bytes may have been sent. `probe` sends the next."""

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
        is_over = self._transport.is_closing() or self._cycle.response_started
        if is_over or self._sent == len(BEGINNING):
            return
        self._transport.write(BEGINNING[self._sent : self._sent + 1])
        self._sent += 1
        self._loop.call_later(pause_s, self.probe, LONGER * pause_s)

    def write(self, data: bytes) -> None:
        """The rest of the answer's head; what follows it goes straight to the transport."""
        self._cycle.transport = self._transport
        self._transport.write(data[self._sent :])

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def close(self) -> None:
        self._transport.close()
