"""One request and its response, as an ASGI application sees them. Made by `http_connection`."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Callable
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from proxy.api.errors import body_of
from proxy.domain.errors import ErrorCode, RequestError

if TYPE_CHECKING:
    from proxy.server.http_connection import HttpConnection

STATUS_LINES = {
    status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus
}
CONTINUE = STATUS_LINES[100] + b"\r\n"
BEGINNING = b"HTTP/1.1 "  # of every response
BODILESS = (204, 304)
INVALID_NAME = re.compile(rb"[^!#$%&'*+.^_`|~0-9A-Za-z-]")
INVALID_VALUE = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
HIGH_WATER_BYTES = 65_536  # of a body that the application has not taken

Message = Any  # an ASGI message


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
        self._has_body = True  # the response
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
        if not self.is_complete:
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
        if not more:
            self.is_complete = True
            self._event.set()
            self._connection.on_answered(self)


def error_response(code: ErrorCode, message: str) -> bytes:
    """Made without the application; ends the connection."""
    body = json.dumps(body_of(RequestError(message, code=code, param=None))).encode()
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


@lru_cache(maxsize=256)
def field_name(name: bytes) -> bytes:
    if not name or INVALID_NAME.search(name):
        raise RuntimeError(f"invalid name of a response's field: {name!r}")
    return name.lower()
