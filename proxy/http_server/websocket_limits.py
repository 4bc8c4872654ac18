"""Limits WebSocket messages before the application sees them. Used by `protocols`.

`websockets` limits the size of a message, but neither its time nor its frames: it needs some 10 µs
for a frame of six bytes, and answers every ping.
"""

from __future__ import annotations

import asyncio
from collections import deque

import structlog
from uvicorn._types import ASGIReceiveEvent
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.exceptions import ProtocolError
from websockets.frames import Frame, Opcode

from triton_openai.proxy.api.bodies.bytes_in_flight import ArrivingBody, BytesInFlight
from triton_openai.proxy.domain.errors import RateLimited

logger = structlog.get_logger(__name__)

POLICY_VIOLATION, TRY_AGAIN_LATER = 1008, 1013
WINDOW_S = 1.0
FREE_FRAMES = 256  # in each window
LEAST_FRAME_BYTES = 512  # on average, with more frames than that
DATA = (Opcode.TEXT, Opcode.BINARY, Opcode.CONT)


class WebSocketLimits(WebSocketsSansIOProtocol):
    """The limits of one connection. message_timeout_s: from a message's first byte to its last."""

    message_timeout_s: float
    in_flight: BytesInFlight
    _limit: asyncio.TimerHandle | None = None
    _window_end = 0.0
    _frames = 0
    _frame_bytes = 0
    _arriving: ArrivingBody | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._queued: deque[int] = deque()  # sizes of messages that wait for the application
        self._receive_frame = self.conn.recv_frame
        self.conn.recv_frame = self._count_frame  # type: ignore[method-assign]

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_expecting()
        if self._arriving is not None:
            self._arriving.close()
        super().connection_lost(exc)
        self._forget_message()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.transport.is_closing():
            return
        if self._is_inside_message:
            if self._limit is None:
                self._limit = self.loop.call_later(self.message_timeout_s, self._check_time)
        else:
            self._stop_expecting()
        self._count_bytes()

    async def receive(self) -> ASGIReceiveEvent:
        event = await super().receive()
        if event["type"] == "websocket.receive":
            self._queued.popleft()
            self._count_bytes()
        return event

    def send_receive_event_to_app(self) -> None:
        self._stop_expecting()
        size, events = sum(map(len, self.frames)), self.queue.qsize()
        super().send_receive_event_to_app()
        if self.queue.qsize() > events:
            self._queued.append(size)

    def handle_ping(self) -> None:
        """Ends the connection of a client that does not read the pongs."""
        if self.writable.is_set():
            super().handle_ping()
        else:
            self.transport.abort()

    @property
    def _is_inside_message(self) -> bool:
        return self.conn.current_size is not None or bool(self.conn.reader.buffer)

    def _count_frame(self, frame: Frame) -> None:
        """Called by the parser for every frame; an exception ends the connection."""
        now = self.loop.time()
        if now > self._window_end:
            self._window_end = now + WINDOW_S
            self._frames = self._frame_bytes = 0
        self._frames += 1
        if frame.opcode in DATA:
            self._frame_bytes += len(frame.data)
        if self._frames > max(FREE_FRAMES, self._frame_bytes // LEAST_FRAME_BYTES):
            logger.warning(
                "too many small frames",
                client=self.client,
                frames=self._frames,
                advice="a client sends its messages in pieces of a few bytes: find out what it "
                "is, it was disconnected",
            )
            raise ProtocolError("too many small frames")
        self._receive_frame(frame)

    def _count_bytes(self) -> None:
        conn = self.conn
        held = sum(self._queued) + len(conn.reader.buffer) + (conn.current_size or 0)
        if held == 0:
            if self._arriving is not None:
                self._arriving.close()
                self._arriving = None
            return
        if self._arriving is None:
            self._arriving = self.in_flight.arriving(self._no_room)
        try:
            self._arriving.add(held - self._arriving.bytes)
        except RateLimited:
            self._no_room()

    def _no_room(self) -> None:
        self._end(TRY_AGAIN_LATER, "too many large requests")

    def _check_time(self) -> None:
        """A client is not late while we do not read from it."""
        if self.read_paused:
            self._limit = self.loop.call_later(self.message_timeout_s, self._check_time)
            return
        self._limit = None
        logger.info("slow sender cut off", client=self.client)
        self._end(POLICY_VIOLATION, f"the message did not end within {self.message_timeout_s:g} s")

    def _stop_expecting(self) -> None:
        if self._limit is not None:
            self._limit.cancel()
            self._limit = None

    def _end(self, code: int, reason: str) -> None:
        if not self.transport.is_closing() and not self.close_sent:
            self.conn.fail(code, reason)
            self.handle_parser_exception()
        self.transport.close()
        self._forget_message()

    def _forget_message(self) -> None:
        """Frees the message now, because a reference cycle keeps the protocol alive for a while."""
        self.frames = []
        self.conn.reader.buffer.clear()
        self.conn.parser.close()  # it holds the last frame
