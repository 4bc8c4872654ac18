"""WebSockets over the library `websockets`, as an ASGI application sees them; with bounds.

Made by `http_connection` for a request to upgrade. The library bounds the size of a message, but
neither its time nor its frames: it needs some 10 µs for a frame of six bytes, and answers every
ping.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable
from typing import Any

import structlog
from websockets.exceptions import InvalidState
from websockets.frames import CloseCode, Frame, Opcode
from websockets.http11 import Request
from websockets.protocol import State
from websockets.server import ServerProtocol

from proxy.api.http.body_reader import ArrivingBody
from proxy.domain.errors import ErrorCode, RateLimited
from proxy.server.connection import Connection, Message, error_response

WINDOW_S = 1.0
FREE_FRAMES = 256  # in each window
LEAST_FRAME_BYTES = 512  # on average, with more frames than that
STEP_BYTES = 1_024  # that are parsed before the frames are counted again
PING_S = 20.0  # a client that does not answer a ping for so long is gone
CLOSE_S = 10.0  # for the client's half of the closing handshake
DATA = (Opcode.TEXT, Opcode.BINARY, Opcode.CONT)

logger = structlog.get_logger(__name__)


class ClientDisconnected(OSError):
    """Raised in the application, as ASGI has it for messages that cannot be sent any more."""


class WebSocketConnection(Connection):
    """Reading is paused until the application accepts, while a message waits for it, and while
    received bytes wait for a turn.
    """

    def open(self, head: bytes, scope: dict[str, Any], early: bytes) -> None:
        """Starts the application. early: what the client has sent after the head."""
        self._protocol = ServerProtocol(max_size=self.bounds.most_message_bytes)
        self._early = early
        self._unparsed = b""
        self._events: asyncio.Queue[Message] = asyncio.Queue()
        self._denial: Message = None
        self._denial_body = b""
        self._parts: list[bytes] = []  # of the message that arrives
        self._parts_bytes = 0
        self._is_text = False
        self._frame_bytes = 0  # of the frame that arrives
        self._message_since = math.inf
        self._queued: deque[int] = deque()  # sizes of messages that wait for the application
        self._arriving: ArrivingBody | None = None
        self._window_end = 0.0
        self._window_frames = self._window_bytes = 0
        self._is_heard = True
        self._has_ended = False
        self._timer: asyncio.TimerHandle | None = None
        self.pause_reading()
        self._protocol.receive_data(head)
        request = next(iter(self._protocol.events_received()), None)
        if not isinstance(request, Request):
            self._refuse(ErrorCode.INVALID_HTTP, "The request for a WebSocket is malformed.")
            return
        self._response = self._protocol.accept(request)
        if self._response.status_code != 101:
            self._protocol.send_response(self._response)
            self._send()
            return
        del scope["method"]
        scope["type"], scope["scheme"] = "websocket", "wss" if self.is_tls else "ws"
        scope["extensions"] = {"websocket.http.response": {}}
        scope["subprotocols"] = [
            name.strip()
            for value in request.headers.get_all("Sec-WebSocket-Protocol")
            for name in value.split(",")
        ]
        self._events.put_nowait({"type": "websocket.connect"})
        self.start(self._run(scope))

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._end()

    def shutdown(self) -> None:
        """Called by uvicorn when it stops. The application closes the socket in its time."""
        if self._has_ended:
            self.close()
        elif self._protocol.state is State.CLOSING:
            self._end()

    # The application's side

    async def _run(self, scope: dict[str, Any]) -> None:
        code = CloseCode.NORMAL_CLOSURE
        try:
            await self.config.loaded_app(scope, self.receive, self.send)
        except (asyncio.CancelledError, ClientDisconnected):
            pass
        except Exception:
            self.report_exception()
            code = CloseCode.INTERNAL_ERROR
        if self._has_ended:
            return
        if self._protocol.state is State.CONNECTING:
            self._refuse(ErrorCode.INTERNAL_ERROR, "The server had an error.")
        elif self._protocol.state is State.OPEN:
            self._fail(code, "")

    async def receive(self) -> Message:
        event = await self._events.get()
        if event["type"] == "websocket.receive":
            self._queued.popleft()
            self._count_bytes()
            self._resume_if_idle()
        return event

    async def send(self, message: Message) -> None:
        """
        Raises:
            ClientDisconnected: the client has disconnected.
        """
        if self.is_full:
            await self.drained()
        if self._has_ended:
            raise ClientDisconnected
        kind, is_open = message["type"], self._protocol.state is not State.CONNECTING
        try:
            if kind == "websocket.send" and is_open:
                if (text := message.get("text")) is not None:
                    self._protocol.send_text(text.encode())
                else:
                    self._protocol.send_binary(message["bytes"])
            elif kind == "websocket.close" and is_open:
                code, reason = message.get("code", 1000), message.get("reason") or ""
                self._protocol.send_close(code, reason)
                self._events.put_nowait({"type": "websocket.disconnect", "code": code})
                self._wait(CLOSE_S, self._end)
                self.resume_reading()
            elif kind == "websocket.close":
                self._reject(403, "")
            elif kind == "websocket.accept" and not is_open:
                self._accept(message)
            elif kind == "websocket.http.response.start" and not is_open:
                self._denial = message
            elif kind == "websocket.http.response.body" and self._denial is not None:
                self._denial_body += message.get("body", b"")
                if not message.get("more_body"):
                    self._reject(
                        self._denial["status"],
                        self._denial_body.decode(),
                        self._denial.get("headers", ()),
                    )
            else:
                raise RuntimeError(f"ASGI message {kind!r} does not belong here")
        except InvalidState:
            raise ClientDisconnected from None
        self._send()

    def _accept(self, message: Message) -> None:
        headers = self._response.headers
        if message.get("subprotocol"):
            headers["Sec-WebSocket-Protocol"] = message["subprotocol"]
        for name, value in message.get("headers", ()):
            headers[name.decode("latin-1")] = value.decode("latin-1")
        self._protocol.send_response(self._response)
        self._send()
        self._wait(PING_S, self._ping)
        self.resume_reading()
        self.data_received(self._early)

    def _reject(self, status: int, text: str, headers: Any = ()) -> None:
        response = self._protocol.reject(status, text)
        for name, value in headers:
            response.headers.pop(name.decode("latin-1"), None)
            response.headers[name.decode("latin-1")] = value.decode("latin-1")
        self._protocol.send_response(response)
        self._send()

    def _refuse(self, code: ErrorCode, message: str) -> None:
        self.write(error_response(code, message))
        self._end()

    # The client's side

    def data_received(self, data: bytes) -> None:
        if self._has_ended:
            self.discard(data)
            return
        self._is_heard = True
        if self._unparsed or not self.bounds.turn.takes(len(data)):
            self._parse_later(data)
        else:
            self._parse(data)

    def _parse_later(self, data: bytes) -> None:
        if not self._unparsed:
            self.pause_reading()
            self.loop.call_soon(self._parse_unparsed)
        self._unparsed += data
        self._count_bytes()

    def _parse_unparsed(self) -> None:
        data, self._unparsed = self._unparsed, b""
        if not self._has_ended:
            self.data_received(data)
            self._resume_if_idle()

    def _resume_if_idle(self) -> None:
        if self._events.empty() and not self._unparsed:
            self.resume_reading()

    def _parse(self, data: bytes) -> None:
        for at in range(0, len(data), STEP_BYTES):
            if self._has_ended:
                return
            step = data[at : at + STEP_BYTES]
            self._protocol.receive_data(step)
            self._frame_bytes += len(step)
            for frame in self._protocol.events_received():
                if isinstance(frame, Frame) and not self._has_ended:
                    self._take(frame)
            self._send()
        if self._has_ended:
            return
        if not self._frame_bytes and not self._parts:
            self._message_since = math.inf
        elif self._message_since == math.inf:
            self._message_since = self.loop.time()
        self._count_bytes()

    def _take(self, frame: Frame) -> None:
        size = len(frame.data)
        self._frame_bytes -= size + (6 if size < 126 else 8 if size < 65_536 else 14)  # its head
        if self._is_flooding(frame):
            self._fail(CloseCode.PROTOCOL_ERROR, "too many small frames")
        elif frame.opcode is Opcode.PING and self.is_full:
            self.transport.abort()  # the client does not read the pongs
        elif frame.opcode in DATA:
            if frame.opcode is not Opcode.CONT:
                self._is_text = frame.opcode is Opcode.TEXT
            self._parts.append(bytes(frame.data))
            frame.data = b""  # the library keeps the frame until the next one
            self._parts_bytes += size
            if frame.fin:
                self._end_message()

    def _is_flooding(self, frame: Frame) -> bool:
        now = self.loop.time()
        if now > self._window_end:
            self._window_end = now + WINDOW_S
            self._window_frames = self._window_bytes = 0
        self._window_frames += 1
        if frame.opcode in DATA:
            self._window_bytes += len(frame.data)
        if self._window_frames <= max(FREE_FRAMES, self._window_bytes // LEAST_FRAME_BYTES):
            return False
        logger.warning(
            "too many small frames",
            client=self.client,
            frames=self._window_frames,
            advice="a client sends its messages in pieces of a few bytes: find out what it is, it "
            "was disconnected",
        )
        return True

    def _end_message(self) -> None:
        data = b"".join(self._parts)
        self._parts, self._parts_bytes, self._message_since = [], 0, math.inf
        if self._protocol.state is not State.OPEN:
            return  # the application has closed the socket
        try:
            content: Any = {"text": data.decode()} if self._is_text else {"bytes": data}
        except UnicodeDecodeError:
            self._fail(CloseCode.INVALID_DATA, "the text is not UTF-8")
            return
        self._events.put_nowait({"type": "websocket.receive", **content})
        self._queued.append(len(data))
        self.pause_reading()

    def _count_bytes(self) -> None:
        """Counts what this connection holds and the application has not taken."""
        held = sum(self._queued) + self._frame_bytes + self._parts_bytes + len(self._unparsed)
        if held == 0 or self._has_ended:
            if self._arriving is not None:
                self._arriving.close()
                self._arriving = None
            return
        if self._arriving is None:
            self._arriving = ArrivingBody(self.bounds.in_flight, self._no_room)
        try:
            self._arriving.add(held - self._arriving.bytes)
        except RateLimited:
            self._no_room()

    def _no_room(self) -> None:
        self._fail(CloseCode.TRY_AGAIN_LATER, "too many large requests")

    def late_at(self) -> float:
        """A client is not late while we do not read from it."""
        if self.is_reading_paused:
            return math.inf
        return self._message_since + self.bounds.body_timeout_s

    def on_late(self) -> None:
        logger.info("slow sender cut off", client=self.client)
        reason = f"the message did not end within {self.bounds.body_timeout_s:g} s"
        self._fail(CloseCode.POLICY_VIOLATION, reason)

    def extend_time(self, seconds: float) -> None:
        self._message_since += seconds

    # The end

    def _ping(self) -> None:
        if not self._is_heard and not self.is_reading_paused:
            self._fail(CloseCode.INTERNAL_ERROR, "keepalive ping timeout")
            return
        self._is_heard = False
        self._protocol.send_ping(b"")
        self._send()
        self._wait(PING_S, self._ping)

    def _wait(self, seconds: float, then: Callable[[], None]) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.loop.call_later(seconds, then)

    def _send(self) -> None:
        """Sends what the library has to send; an empty piece is its end of the connection."""
        for data in self._protocol.data_to_send():
            if data:
                self.write(data)
            else:
                self._end()

    def _fail(self, code: int, reason: str) -> None:
        if not self._has_ended:
            self._protocol.fail(code, reason)
            self._send()

    def _end(self) -> None:
        """Closes, and frees the message that arrives: a cycle keeps the library's object alive."""
        if self._has_ended:
            return
        self._has_ended = True
        if self._timer is not None:
            self._timer.cancel()
        self._protocol.receive_eof()
        self._events.put_nowait(
            {
                "type": "websocket.disconnect",
                "code": self._protocol.close_code,
                "reason": self._protocol.close_reason,
            }
        )
        self._parts, self._unparsed = [], b""
        self._count_bytes()
        self.linger()
