"""What HTTP and WebSocket connections share: joined writes, flow control, and the clock.

The base of `http_connection` and `websocket_connection`.

The kernel answers bytes that arrive on a closed connection with a reset, and the client's kernel
then drops what its program has not read: the response that says what was wrong. So where a client
may still be sending, only our side is closed (`linger`), and what arrives is discarded, within
limits.
"""

from __future__ import annotations

import asyncio
import contextvars
import json
import math
import time
from dataclasses import dataclass, field
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus
from typing import Any

import structlog
from uvicorn import Config
from uvicorn.server import ServerState

from proxy.api.errors import body_of
from proxy.api.http.body_reader import BytesInFlight
from proxy.domain.errors import ErrorCode, RequestError

LINGER_S = 5.0
SENDER_TIMEOUT_S = BODY_TIMEOUT_S = 60.0
LINGER_BYTES = 32_000_000
TURN_BYTES = 1_048_576  # some 3 ms
MOST_JOINED_BYTES = 32_768  # that wait for the end of a turn of the event loop

logger = structlog.get_logger(__name__)

Address = tuple[str, int] | None
Message = Any  # an ASGI message

STATUS_LINES = {
    status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus
}


class Turn:
    """What may still be parsed, of all WebSockets, in this turn of the event loop."""

    def __init__(self) -> None:
        self._left = TURN_BYTES

    def takes(self, size: int) -> bool:
        if self._left <= 0:
            return False
        if self._left == TURN_BYTES:
            asyncio.get_running_loop().call_soon(self._end)
        self._left -= size
        return True

    def _end(self) -> None:
        self._left = TURN_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What one client may take: time in seconds, connections, bytes."""

    reader_timeout_s: float
    """How long a full buffer of bytes that the client does not read may stay full."""
    sender_timeout_s: float = SENDER_TIMEOUT_S
    """From the start of the connection, or a request's first byte, to the end of its head; and
    between two pieces of its body."""
    body_timeout_s: float = BODY_TIMEOUT_S
    """From the end of a head to the end of the body; and for a WebSocket message."""
    idle_timeout_s: float
    """From an answer to the next request."""
    most_connections: int
    """Of this process, WebSockets included."""
    most_message_bytes: int
    """Of a WebSocket message; a larger one ends the connection."""
    in_flight: BytesInFlight
    turn: Turn = field(default_factory=Turn)

    @property
    def shortest_s(self) -> float:
        return min(
            self.reader_timeout_s, self.sender_timeout_s, self.body_timeout_s, self.idle_timeout_s
        )


class Connection(asyncio.Protocol):
    """Subclasses say until when a client has time (`late_at`) and what happens then (`on_late`)."""

    transport: asyncio.Transport

    def __init__(
        self,
        bounds: Bounds,
        config: Config,
        server_state: ServerState,
    ) -> None:
        self.bounds = bounds
        self.config = config
        self.server_state = server_state
        self.loop = asyncio.get_running_loop()
        self.client: Address = None
        self.server: Address = None
        self.is_tls = False
        self.is_full = False  # of bytes that the client does not read
        self._is_writable = asyncio.Event()
        self._full_since = math.inf
        self._unsent: list[bytes] = []
        self._unsent_bytes = 0
        self._paused_at: float | None = None
        self._discarded: int | None = None  # bytes after the last ones of ours; None before
        self._clock: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.transport = transport
        self.server_state.connections.add(self)  # type: ignore[arg-type]
        self.client = _address(transport.get_extra_info("peername"))
        self.server = _address(transport.get_extra_info("sockname"))
        self.is_tls = transport.get_extra_info("sslcontext") is not None
        self._context = contextvars.copy_context()
        self._clock = self.loop.call_later(self.bounds.shortest_s, self._check_clock)

    def connection_lost(self, exc: Exception | None) -> None:
        self.leave()
        self._unsent.clear()
        self.is_full = False
        self._is_writable.set()

    def leave(self) -> None:
        """Ends this object's part, because the connection is lost or belongs to another one."""
        self.server_state.connections.discard(self)
        if self._clock is not None:
            self._clock.cancel()

    # Writing

    def write(self, data: bytes) -> None:
        """Sends what is written in one turn of the event loop in one system call."""
        if not self._unsent:
            self.loop.call_soon(self.flush)
        self._unsent.append(data)
        self._unsent_bytes += len(data)
        if self._unsent_bytes > MOST_JOINED_BYTES:
            self.flush()

    def flush(self) -> None:
        unsent, self._unsent, self._unsent_bytes = self._unsent, [], 0
        if unsent and not self.is_over:
            self.transport.write(unsent[0] if len(unsent) == 1 else b"".join(unsent))

    def close(self) -> None:
        """Closes when all is sent; a client that does not read has as long as any slow reader."""
        self.flush()
        self.transport.close()
        self._full_since = min(self._full_since, self.loop.time())

    def eof_received(self) -> bool | None:
        """Sends what waits: after a client's FIN the event loop may close the connection."""
        self.flush()
        return None

    def linger(self) -> None:
        """The client may continue to send, for LINGER_S and LINGER_BYTES at most."""
        if self.is_over:
            return
        self.flush()
        self._discarded = 0
        if self.transport.can_write_eof():  # TLS cannot close one side
            self.transport.write_eof()
        self.resume_reading()
        self.loop.call_later(LINGER_S, self.close)

    @property
    def is_lingering(self) -> bool:
        return self._discarded is not None

    @property
    def is_over(self) -> bool:
        return self.is_lingering or self.transport.is_closing()

    def discard(self, data: bytes) -> None:
        self._discarded = (self._discarded or 0) + len(data)
        if self._discarded > LINGER_BYTES:
            self.close()

    async def drained(self) -> None:
        """Returns when the client has read enough, or the connection is lost."""
        await self._is_writable.wait()

    def pause_writing(self) -> None:
        self.is_full = True
        self._is_writable.clear()
        self._full_since = self.loop.time()

    def resume_writing(self) -> None:
        self.is_full = False
        self._is_writable.set()
        self._full_since = self.loop.time() if self.transport.is_closing() else math.inf

    # Reading

    @property
    def is_reading_paused(self) -> bool:
        return self._paused_at is not None

    def pause_reading(self) -> None:
        if self._paused_at is None:
            self._paused_at = self.loop.time()
            self.transport.pause_reading()

    def resume_reading(self) -> None:
        """Gives the client the time back that we did not read."""
        if self._paused_at is not None:
            self.extend_time(self.loop.time() - self._paused_at)
            self._paused_at = None
            if not self.transport.is_closing():
                self.transport.resume_reading()

    # The clock: one timer, which looks so often that no client is late for longer than a moment

    def late_at(self) -> float:
        """When the client is late with what it is sending; infinity while it owes nothing."""
        raise NotImplementedError

    def on_late(self) -> None:
        raise NotImplementedError

    def extend_time(self, seconds: float) -> None:
        raise NotImplementedError

    def _check_clock(self) -> None:
        bounds, now = self.bounds, self.loop.time()
        if self._full_since + bounds.reader_timeout_s <= now:
            self._cut_off_reader()
            return
        if self._late_at() <= now:
            self.on_late()
        due = min(self._late_at(), self._full_since + bounds.reader_timeout_s)
        self._clock = self.loop.call_at(min(due, now + bounds.shortest_s), self._check_clock)

    def _late_at(self) -> float:
        return math.inf if self.is_over else self.late_at()

    def _cut_off_reader(self) -> None:
        """Aborts, because `close` would wait until the client has read the rest."""
        logger.warning(
            "slow reader cut off",
            client=self.client,
            unread_bytes=self.transport.get_write_buffer_size(),
            slow_reader_timeout_s=self.bounds.reader_timeout_s,
            advice="the client or the network reads too slowly; SLOW_READER_TIMEOUT_S says how "
            "long it may",
        )
        self.transport.abort()

    def start(self, work: Any) -> None:
        """Runs the application in a task, with no context variable of another request."""
        task = self._context.run(self.loop.create_task, work)
        self.server_state.tasks.add(task)
        task.add_done_callback(self.server_state.tasks.discard)

    def report_exception(self) -> None:
        logger.exception(
            "exception in the application",
            advice="this is a bug of the proxy: report it with this line",
        )


def _address(found: Any) -> Address:
    return (str(found[0]), int(found[1])) if isinstance(found, tuple) else None


def error_response(code: ErrorCode, message: str) -> bytes:
    """Made without the application; ends the connection."""
    body = json.dumps(body_of(RequestError(message, code=code))).encode()
    lines = (
        status_line(code.status),
        date_field(int(time.time())),
        b"content-type: application/json\r\nconnection: close\r\n",
        b"content-length: %d\r\n\r\n" % len(body),
        body,
    )
    return b"".join(lines)


def status_line(status: int) -> bytes:
    return STATUS_LINES.get(status) or b"HTTP/1.1 %d \r\n" % status


@lru_cache(maxsize=1)
def date_field(second: int) -> bytes:
    return f"date: {formatdate(second, usegmt=True)}\r\n".encode()
