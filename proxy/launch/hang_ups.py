"""Who has left, and who has only closed the sending side behind a request. For `connections`.

Both have sent a FIN. Only what is sent to those who have left comes back as a reset, so they are
sent interim responses, which every client of HTTP/1.1 passes over (RFC 9110, 15.2). Amid an answer
nothing can be sent beside it: who closes then has left.
"""

from __future__ import annotations

from typing import Any

from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

INTERIM = STATUS_LINE[100] + b"\r\n"
FIRST_PAUSE_S = 0.01
LONGEST_PAUSE_S = 1.0  # behind some load balancers the first reset is not theirs


class NoticedHangUps(HttpToolsProtocol):
    _answered: RequestResponseCycle  # `cycle` is the last one, which may wait behind it

    def eof_received(self) -> bool | None:  # type: ignore[override]
        """Whether the connection stays open."""
        last = self.cycle
        if last is None or last.more_body or last.response_started:
            return None
        if last.scope["http_version"] != "1.1":
            return None
        last.keep_alive = False
        self._probe(FIRST_PAUSE_S)
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
