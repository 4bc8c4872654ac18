"""HTTP/1.1 over httptools, for uvicorn's setting `http`: bounds, clocks, disconnects.

Made by uvicorn for each connection; `run` sets the bounds.

A client that has sent a FIN may have disconnected, or may only have closed its sending side. Only a
disconnected client answers further bytes with a reset. So the connection is probed with interim
responses, which every HTTP/1.1 client ignores (RFC 9110, 15.2). HTTP/1.0 lacks those: its clients
get the first bytes of the response, which are the same in all responses, one by one.
"""

from __future__ import annotations

import asyncio
import math
import re
import time
from collections import deque
from collections.abc import Callable
from functools import lru_cache
from typing import Any, ClassVar, NoReturn
from urllib.parse import unquote

import httptools
import structlog
from uvicorn import Config
from uvicorn.server import ServerState

from proxy.domain.errors import ErrorCode
from proxy.server.connection import (
    STATUS_LINES,
    Bounds,
    Connection,
    Message,
    date_field,
    error_response,
    status_line,
)
from proxy.server.websocket_connection import WebSocketConnection

# 256 KB can hold 14,000 pipelined requests, 60,000 header fields or 43,000 chunks of one byte, and
# Python code runs for each of them.
MOST_HEAD_BYTES = 65_536
MOST_URL_BYTES = 8_192
MOST_FIELDS = 128  # the same limit as in `websockets`
MOST_PIPELINED = 32  # requests that wait for the response to an earlier one
FREE_PIECES = 1_000  # of a body
LEAST_PIECE_BYTES = 64  # on average, with more pieces than that
LEAST_BYTES_A_SECOND = 100_000  # of a body that takes longer than its time
LAST_REQUEST_S = 0.05  # for a request that is on its way when the server stops
FIRST_PAUSE_S = 0.01  # between two probes; each is longer than the one before
LONGEST_PAUSE_S = 1.0  # with some load balancers the reset comes late
OLD_PAUSE_FACTOR = 4  # the nine bytes for HTTP/1.0 last for fourteen minutes
# RFC 3986, 3.2.2 and 3.2.3: a name, an address, an address in brackets; and a port.
VALID_HOST = re.compile(rb"(?:[\w.~!$&'()*+,;=%-]*|\[[0-9A-Fa-fv.:]+\])(?::[0-9]*)?", re.ASCII)

CONTINUE = STATUS_LINES[100] + b"\r\n"
BEGINNING = b"HTTP/1.1 "  # of every response
BODILESS = (204, 304)
INVALID_NAME = re.compile(rb"[^!#$%&'*+.^_`|~0-9A-Za-z-]")
INVALID_VALUE = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
HIGH_WATER_BYTES = 65_536  # of a body that the application has not taken

logger = structlog.get_logger(__name__)


class Exchange:
    """`more_body`: the request's body is not complete. `keeps_alive`: the connection stays open."""

    def __init__(
        self,
        connection: HttpConnection,
        scope: dict[str, Any],
        *,
        keeps_alive: bool,
        awaits_continue: bool,
    ) -> None:
        self.scope = scope
        self.is_http10 = scope["http_version"] == "1.0"
        self.keeps_alive = keeps_alive and not self.is_http10
        self.more_body = True
        self.has_started = self.is_complete = self.is_disconnected = False
        self.probed = 0  # bytes of BEGINNING that have been sent
        self._connection = connection
        self._awaits_continue = awaits_continue
        self._event = asyncio.Event()
        self._on_disconnect: Callable[[], None] | None = None
        self._body: list[bytes] = []
        self._body_bytes = 0
        self._has_body = self._is_first_part = True  # the response
        self._is_chunked = False
        self._left: int | None = None  # bytes of the response's body; None: until its end

    async def run(self, app: Any) -> None:
        code, fault = ErrorCode.INTERNAL_ERROR, "The server had an error."
        try:
            await app(self.scope, self, self.send)
        except asyncio.CancelledError:
            code, fault = ErrorCode.MODEL_UNAVAILABLE, "The server stops."
        except Exception:
            self._connection.report_exception()
        if self.is_complete or self.is_disconnected:
            return
        if self.has_started:
            self._connection.close()  # which shows the client that this is not all
        else:
            self._connection.send_error(code, fault)

    def add_body(self, data: bytes) -> None:
        self._body.append(data)
        self._body_bytes += len(data)
        if self._body_bytes > HIGH_WATER_BYTES:
            self._connection.pause_reading()
        self._event.set()

    def end_body(self) -> None:
        self.more_body = False
        self._event.set()

    def disconnect(self) -> None:
        if not self.is_complete and not self.is_disconnected:
            self.is_disconnected = True
            self._event.set()
            if self._on_disconnect is not None:
                self._on_disconnect()

    def on_disconnect(self, then: Callable[[], None] | None) -> bool:
        """Has `then` called when the client disconnects. Returns whether it is still connected."""
        self._on_disconnect = then
        if then is not None:
            self._connection.resume_reading()
        return not (self.is_disconnected or self.is_complete)

    async def __call__(self) -> Message:
        """ASGI's `receive`."""
        if self._awaits_continue:
            self._awaits_continue = False
            self._connection.write(CONTINUE)
        if not self.is_disconnected and not self.is_complete:
            self._connection.resume_reading()
            await self._event.wait()
            self._event.clear()
        if self.is_disconnected or self.is_complete:
            return {"type": "http.disconnect"}
        body, self._body, self._body_bytes = b"".join(self._body), [], 0
        return {"type": "http.request", "body": body, "more_body": self.more_body}

    async def send(self, message: Message) -> None:
        if self._connection.is_full:
            await self._connection.drained()
        if self.is_disconnected:
            return
        kind = message["type"]
        if kind == "http.response.body" and self.has_started and not self.is_complete:
            self._send_body(message.get("body", b""), message.get("more_body", False))
        elif kind == "http.response.start" and not self.has_started:
            self._send_head(message["status"], message.get("headers", ()))
        else:
            raise RuntimeError(f"ASGI message {kind!r} does not belong here")

    def _send_head(self, status: int, headers: Any) -> None:
        self.has_started = True
        self._awaits_continue = False
        lines = [status_line(status), date_field(int(time.time()))]
        has_close = has_coding = False
        for name, value in headers:
            name = field_name(name)
            if INVALID_VALUE.search(value):
                raise RuntimeError(f"invalid value of the response's field {name!r}")
            if name == b"content-length":
                self._left = int(value)
            elif name == b"transfer-encoding":
                has_coding = self._is_chunked = value.lower() == b"chunked"
            elif name == b"connection" and b"close" in value.lower():
                has_close, self.keeps_alive = True, False
            lines += (name, b": ", value, b"\r\n")
        self._has_body = self.scope["method"] != "HEAD" and status not in BODILESS
        if self._left is None and self._has_body and not has_coding:
            if self.is_http10:  # has no chunks: the end of the connection ends the body
                self.keeps_alive = False
            else:
                self._is_chunked = True
                lines.append(b"transfer-encoding: chunked\r\n")
        if not has_close and not self._connection.stays_open_after(self):
            lines.append(b"connection: close\r\n")
        lines.append(b"\r\n")
        head = b"".join(lines)
        self._connection.write(head[self.probed :] if self.probed else head)

    def _send_body(self, body: bytes, more: bool) -> None:
        if self._is_chunked and self._has_body:
            if body:
                self._connection.write(b"%x\r\n%b\r\n" % (len(body), body))
            if not more:
                self._connection.write(b"0\r\n\r\n")
        elif self._has_body:
            if self._left is not None:
                self._left -= len(body)
                if self._left < 0 or (self._left and not more):
                    raise RuntimeError("the response's body does not have its content-length")
            if body:
                self._connection.write(body)
        if self._is_first_part and more:  # many streams may begin in this turn of the event loop
            self._connection.flush()
        self._is_first_part = False
        if not more:
            self.is_complete = True
            self._event.set()
            self._connection.on_answered(self)


class _Refused(Exception):
    """Raised in a callback of the parser, stops it."""


class HttpConnection(Connection):
    """uvicorn makes it with these arguments, so that `bound` sets all else on the class.

    stopping: set when the server is about to stop; a response then ends its connection.
    """

    own_bounds: ClassVar[Bounds]
    stopping: ClassVar[asyncio.Event]

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(self.own_bounds, config, server_state)
        self._parser = self._new_parser()
        self._refusal: tuple[ErrorCode, str] | None = None  # why the parser was stopped
        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._head_bytes = 0
        self._scope: dict[str, Any] = {}
        self._upgrade: bytes | None = None  # what the head asks for
        self._pieces = self._body_bytes = 0  # of the body
        self._answered: Exchange | None = None  # the request that is answered, or was last
        self._last: Exchange | None = None  # the request that was parsed last
        self._waiting: deque[Exchange] = deque()  # pipelined requests
        self._since = self.loop.time()  # the client's time runs
        self._body_since = math.inf
        self._idle_bytes = 0  # since a head began or ended, or a piece of a body arrived

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.server_state.connections) > self.bounds.most_connections:
            logger.warning(
                "too many connections",
                client=self.client,
                most=self.bounds.most_connections,
                advice="raise the limit of open files (ulimit -n), unless one client opens them "
                "all",
            )
            self.close()
        elif self.stopping.is_set():
            self.shutdown()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        for exchange in (self._answered, self._last):
            if exchange is not None:
                exchange.disconnect()
        self._answered = self._last = None
        self._waiting.clear()

    def leave(self) -> None:
        super().leave()
        del self._parser  # a cycle of references

    def shutdown(self) -> None:
        """Called by uvicorn when it stops. A request may be on its way."""
        self.loop.call_later(LAST_REQUEST_S, self._close_if_idle)

    def _close_if_idle(self) -> None:
        if self._answered is None or self._answered.is_complete:
            self.close()

    # The client's time

    @property
    def _is_inside_request(self) -> bool:
        return self._idle_bytes > 0 or (self._last is not None and self._last.more_body)

    @property
    def _is_answering(self) -> bool:
        """Whether a response is due or has begun: no clock runs then, and nothing else fits in."""
        exchange = self._answered
        if exchange is None or exchange.is_complete:
            return False
        return exchange is not self._last or exchange.has_started or not exchange.more_body

    def late_at(self) -> float:
        """A client is not late while we do not read from it, or while it is answered."""
        if self.is_reading_paused or self._is_answering:
            return math.inf
        if self._is_inside_request or self._last is None:
            head_or_piece = self._since + self.bounds.sender_timeout_s
            return min(head_or_piece, self._body_since + self._body_s)
        return self._since + self.bounds.idle_timeout_s

    @property
    def _body_s(self) -> float:
        """How long the body may take: more for one that keeps coming, such as a file."""
        return self.bounds.body_timeout_s + self._body_bytes / LEAST_BYTES_A_SECOND

    def on_late(self) -> None:
        if not self._is_inside_request:
            self.close()
            return
        logger.info("slow sender cut off", client=self.client)
        bounds, now = self.bounds, self.loop.time()
        if self._body_since + self._body_s <= now:
            message = f"The body did not end within {self._body_s:.3g} s."
            self._refuse(ErrorCode.REQUEST_TIMEOUT, message)
        else:
            message = f"The request is incomplete: nothing for {bounds.sender_timeout_s:g} s."
            self._refuse(ErrorCode.REQUEST_TIMEOUT, message)

    def extend_time(self, seconds: float) -> None:
        self._since += seconds
        self._body_since += seconds

    def _progressed(self) -> None:
        self._idle_bytes = 0
        self._since = self.loop.time()

    # Parsing

    def data_received(self, data: bytes) -> None:
        if self.is_lingering:
            self.discard(data)
            return
        if not self._is_inside_request:
            self._since = self.loop.time()
        self._idle_bytes += len(data)
        self._feed(data)
        if self._idle_bytes > MOST_HEAD_BYTES and not self.is_over:
            self._refuse(
                ErrorCode.HEADER_FIELDS_TOO_LARGE,
                f"The request's head has more than {MOST_HEAD_BYTES} bytes.",
            )

    def _new_parser(self) -> httptools.HttpRequestParser:
        parser = httptools.HttpRequestParser(self)
        # several requests in one piece of data: the first may end the connection
        parser.set_dangerous_leniencies(lenient_data_after_close=True)
        return parser

    def _feed(self, data: bytes | memoryview) -> None:
        try:
            self._parser.feed_data(data)
            return
        except httptools.HttpParserUpgrade as stopped:
            rest = memoryview(data)[stopped.args[0] :]
        except httptools.HttpParserError as error:
            if isinstance(error, httptools.HttpParserCallbackError) and self._refusal is None:
                self.report_exception()
            refusal = self._refusal or (ErrorCode.INVALID_HTTP, "Invalid HTTP request received.")
            self._refuse(*refusal)
            return
        if self._upgrade == b"websocket":
            self._become_websocket(bytes(rest))
            return
        # The head asks for another protocol, as Java's HTTP client does for h2c. A server that
        # lacks it continues in HTTP/1.1 (RFC 9110, 7.8), but the parser would skip the body.
        head, self._parser = self._head(without=b"upgrade"), self._new_parser()
        self._feed(head)
        if not self.is_over:
            self._feed(rest)

    def _head(self, *, without: bytes = b"") -> bytes:
        """The last request's head, as it came, except for one field."""
        version = self._parser.get_http_version().encode()
        line = b"%b %b HTTP/%b\r\n" % (self._parser.get_method(), self._url, version)
        fields = (b"%b: %b\r\n" % field for field in self._headers if field[0] != without)
        return line + b"".join(fields) + b"\r\n"

    def _stop_parsing(self, code: ErrorCode, message: str) -> NoReturn:
        self._refusal = code, message
        raise _Refused

    def on_message_begin(self) -> None:
        self._since = self.loop.time()
        self._idle_bytes += 1  # bytes that came with the end of another request are not counted
        self._url = b""
        self._headers = []
        self._head_bytes = 0

    def on_url(self, url: bytes) -> None:
        self._url += url
        if len(self._url) > MOST_URL_BYTES:
            self._stop_parsing(
                ErrorCode.URI_TOO_LONG,
                f"The request's target has more than {MOST_URL_BYTES} bytes.",
            )

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name.lower(), value))
        self._head_bytes += len(name) + len(value)
        if self._head_bytes > MOST_HEAD_BYTES:
            self._stop_parsing(
                ErrorCode.HEADER_FIELDS_TOO_LARGE,
                f"The request's head has more than {MOST_HEAD_BYTES} bytes.",
            )
        if len(self._headers) > MOST_FIELDS:
            self._stop_parsing(
                ErrorCode.HEADER_FIELDS_TOO_LARGE,
                f"The request's head has more than {MOST_FIELDS} fields.",
            )

    def on_headers_complete(self) -> None:
        self._progressed()
        if self._parser.should_upgrade():
            self._upgrade = self._wanted_upgrade()
            if self._upgrade is None:
                self._stop_parsing(ErrorCode.INVALID_HTTP, "CONNECT is not supported.")
            if self._upgrade != b"websocket":
                return
        hosts, awaits_continue = [], False
        for name, value in self._headers:
            if name == b"host":
                hosts.append(value)
            elif name == b"expect" and value.lower() == b"100-continue":
                awaits_continue = True
        if fault := self._fault_of(hosts):
            self._stop_parsing(ErrorCode.INVALID_HOST, fault)
        if len(self._waiting) >= MOST_PIPELINED:
            self._stop_parsing(
                ErrorCode.TOO_MANY_PIPELINED,
                f"More than {MOST_PIPELINED} requests wait on this connection.",
            )
        self._scope = self._new_scope()
        if self._parser.should_upgrade():
            return
        self._body_since = self._since
        self._pieces = self._body_bytes = 0
        exchange = self._last = Exchange(
            self,
            self._scope,
            keeps_alive=self._parser.should_keep_alive(),
            awaits_continue=awaits_continue,
        )
        if self._answered is None or self._answered.is_complete:
            self._answer(exchange)
        else:
            self._waiting.append(exchange)
            self.pause_reading()

    def on_body(self, body: bytes) -> None:
        self._progressed()
        self._pieces += 1
        self._body_bytes += len(body)
        if self._pieces > max(FREE_PIECES, self._body_bytes // LEAST_PIECE_BYTES):
            self._stop_parsing(
                ErrorCode.BODY_IN_SMALL_PIECES,
                f"The body came in more than {FREE_PIECES} pieces of less than "
                f"{LEAST_PIECE_BYTES} bytes on average.",
            )
        if self._last is not None and not self._last.is_complete:
            self._last.add_body(body)

    def on_message_complete(self) -> None:
        self._idle_bytes = 0
        self._body_since = math.inf
        if self._last is not None and not self._parser.should_upgrade():
            self._last.end_body()

    def _wanted_upgrade(self) -> bytes | None:
        """None for CONNECT, which the parser takes for an upgrade, too."""
        tokens: list[bytes] = []
        wanted = None
        for name, value in self._headers:
            if name == b"connection":
                tokens += (token.strip() for token in value.lower().split(b","))
            elif name == b"upgrade":
                wanted = value.lower()
        return wanted if b"upgrade" in tokens else None

    def _fault_of(self, hosts: list[bytes]) -> str | None:
        """What violates RFC 9112, 3.2, in a request's Host fields. A server in front of this one
        might take a request with two, or a malformed one, as meant for another host than we do.
        """
        if len(hosts) > 1:
            return "The request has more than one Host field."
        if not hosts:
            is_old = self._parser.get_http_version() == "1.0"
            return None if is_old else "The request has no Host field, which HTTP/1.1 requires."
        return None if VALID_HOST.fullmatch(hosts[0]) else "The request's Host field is malformed."

    def _new_scope(self) -> dict[str, Any]:
        """Of the last head. `peer` stays the connection's own address where uvicorn puts a
        forwarded one into `client`.
        """
        try:
            url = httptools.parse_url(self._url)
            raw_path = url.path or b"/"
            path = raw_path.decode("ascii")
        except (httptools.HttpParserInvalidURLError, UnicodeDecodeError):
            self._stop_parsing(ErrorCode.INVALID_HTTP, "The request's target is malformed.")
        return {
            "type": "http",
            "scheme": "https" if self.is_tls else "http",
            "method": self._parser.get_method().decode("ascii"),
            "asgi": {"version": "3.0", "spec_version": "2.4"},
            "http_version": self._parser.get_http_version(),
            "server": self.server,
            "client": self.client,
            "peer": self.client,
            "root_path": "",
            "path": unquote(path) if "%" in path else path,
            "raw_path": raw_path,
            "query_string": url.query or b"",
            "headers": self._headers,
        }

    def _become_websocket(self, rest: bytes) -> None:
        """Refused during a response, which could not learn then that its client disconnects."""
        if self._answered is not None and not self._answered.is_complete:
            self.close()
            return
        self.flush()
        head = self._head()
        self.leave()
        socket = WebSocketConnection(self.bounds, self.config, self.server_state)
        self.transport.set_protocol(socket)
        socket.connection_made(self.transport)
        socket.open(head, self._scope, rest)

    # Answering

    def _answer(self, exchange: Exchange) -> None:
        self._answered = exchange
        self.start(exchange.run(self.config.loaded_app))

    def stays_open_after(self, exchange: Exchange) -> bool:
        return exchange.keeps_alive and not (self.stopping.is_set() and exchange is self._last)

    def on_answered(self, exchange: Exchange) -> None:
        self.server_state.total_requests += 1
        self.resume_reading()
        self._since = self.loop.time()  # the next request was not read until now
        self._body_since = self._since if exchange.more_body else math.inf
        if not self.stays_open_after(exchange):
            if exchange.more_body:
                self.linger()
            else:
                self.close()
        elif self._waiting and not self.is_over:
            self._answer(self._waiting.popleft())

    def _refuse(self, code: ErrorCode, message: str) -> None:
        """Answers without the application. Only closes if another response is due, or the request
        has been answered already.
        """
        if self._is_answering or self.is_over:
            self.close()
        elif self._last is not None and self._last.is_complete and self._last.more_body:
            self.linger()
        else:
            self.send_error(code, message)

    def send_error(self, code: ErrorCode, message: str) -> None:
        probed = 0 if self._answered is None else self._answered.probed
        self.write(error_response(code, message)[probed:])
        self.linger()
        if self._last is not None:
            self._last.disconnect()

    # Disconnects

    def eof_received(self) -> bool | None:
        """Handles the client's FIN. Returns True to keep the connection open: a complete request
        awaits its response, and the connection is probed until then. With TLS it cannot stay open.
        """
        super().eof_received()
        last = self._last
        if last is None or last.more_body or last.has_started or self.is_tls:
            return None
        if last.is_http10 and last is not self._answered:
            return None
        last.keeps_alive = False
        self._probe(FIRST_PAUSE_S)
        return True

    def _probe(self, pause_s: float) -> None:
        """Sends bytes until the response begins, or a reset ends the connection."""
        exchange = self._answered
        if exchange is None or self.transport.is_closing():
            return
        next_s = min(2 * pause_s, LONGEST_PAUSE_S)
        if not exchange.is_http10:
            if not exchange.has_started:
                self.write(CONTINUE)
        elif exchange.has_started or exchange.probed == len(BEGINNING):
            return
        else:
            self.write(BEGINNING[exchange.probed : exchange.probed + 1])
            exchange.probed += 1
            next_s = OLD_PAUSE_FACTOR * pause_s
        self.loop.call_later(pause_s, self._probe, next_s)


@lru_cache(maxsize=256)
def field_name(name: bytes) -> bytes:
    if not name or INVALID_NAME.search(name):
        raise RuntimeError(f"invalid name of a response's field: {name!r}")
    return name.lower()


def bound(bounds: Bounds, stopping: asyncio.Event) -> type[HttpConnection]:
    """The class for uvicorn's setting `http`."""
    return type("BoundConnection", (HttpConnection,), {"own_bounds": bounds, "stopping": stopping})
