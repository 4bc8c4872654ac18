"""Refuses requests that arrive too slowly, or whose head does not end. Used by `protocols`.

uvicorn waits for both without a limit, and keeps everything that has arrived.
"""

from __future__ import annotations

import asyncio
import math

import structlog

from triton_openai.proxy.domain.errors import ErrorCode
from triton_openai.proxy.http_server.disconnects import DisconnectDetection
from triton_openai.proxy.http_server.host_field import HostFieldCheck
from triton_openai.proxy.http_server.parsing_limits import MOST_HEAD_BYTES
from triton_openai.proxy.http_server.upgrades import WebSocketUpgradesOnly

logger = structlog.get_logger(__name__)


class SlowSenderLimits(DisconnectDetection, WebSocketUpgradesOnly, HostFieldCheck):
    """The limits of one connection.

    request_timeout_s: from the start of the connection, or a request's first byte, to the end of
        the head; and between two pieces of the body.
    body_timeout_s: from the end of the head to the end of the body.
    most_connections: of this process.
    """

    request_timeout_s: float
    body_timeout_s: float
    most_connections: int
    _limit: asyncio.TimerHandle | None = None
    _since = 0.0
    _body_since: float | None = None
    _is_websocket = False  # the connection then belongs to another protocol
    _idle_bytes = 0  # since a head began or ended, or a piece of a body arrived

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._expect()
        if len(self.connections) > self.most_connections:
            logger.warning(
                "too many connections",
                client=self.client,
                most=self.most_connections,
                advice="raise the limit of open files (ulimit -n), unless one client opens them "
                "all",
            )
            transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_expecting()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.is_lingering:
            self.discard(data)
            return
        self._idle_bytes += len(data)
        super().data_received(data)
        if self._limit is None and not self.is_answering and not self._is_websocket:
            self._expect()  # these bytes begin no request, but stopped uvicorn's keep-alive timer
        if self._idle_bytes > MOST_HEAD_BYTES and not self._is_over:
            self.refuse(
                ErrorCode.HEADER_FIELDS_TOO_LARGE,
                f"The request's head has more than {MOST_HEAD_BYTES} bytes.",
            )

    @property
    def _is_over(self) -> bool:
        return self.transport.is_closing() or self.is_lingering

    def on_message_begin(self) -> None:
        self._expect()
        self._idle_bytes += 1  # bytes that arrived with the end of another request are not counted
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._progressed()
        self._body_since = self._since
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._progressed()
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._stop_expecting()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        self._since = self.loop.time()  # the next request was not read until now
        super().on_response_complete()

    def handle_websocket_upgrade(self) -> None:
        self._is_websocket = True
        self._stop_expecting()
        super().handle_websocket_upgrade()

    def _expect(self) -> None:
        if self._limit is not None:
            self._limit.cancel()
        self._since = self.loop.time()
        self._body_since = None
        first_check_s = min(self.request_timeout_s, self.body_timeout_s)
        self._limit = self.loop.call_later(first_check_s, self._check_time)

    def _progressed(self) -> None:
        self._idle_bytes = 0
        self._since = self.loop.time()

    def _stop_expecting(self) -> None:
        self._idle_bytes = 0
        if self._limit is not None:
            self._limit.cancel()
            self._limit = None

    def _check_time(self) -> None:
        """A client is not late while we do not read from it, or once we have started to answer."""
        if self.flow.read_paused or self.is_answering:
            self._since = self.loop.time()
            self._body_since = self._body_since and self._since
        due, body_due = self._since + self.request_timeout_s, math.inf
        if self._body_since is not None:
            body_due = self._body_since + self.body_timeout_s
        if min(due, body_due) > self.loop.time():
            self._limit = self.loop.call_at(min(due, body_due), self._check_time)
            return
        self._limit = None
        logger.info("slow sender cut off", client=self.client)
        if self._idle_bytes == 0 and (self.cycle is None or self.cycle.response_complete):
            self.transport.close()  # there is no request, or it has been answered
            return
        self.refuse(
            ErrorCode.REQUEST_TIMEOUT,
            f"The body did not end within {self.body_timeout_s:g} s."
            if body_due < due
            else f"The request is incomplete: nothing for {self.request_timeout_s:g} s.",
        )
