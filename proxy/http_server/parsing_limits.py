"""Refuses requests that cost too much to parse, and sends the response. Used by `host_field`.

256 KB can hold 14,000 pipelined requests, 60,000 header fields or 43,000 chunks of one byte, and
uvicorn runs Python code for each of them.
"""

from __future__ import annotations

import json

from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from triton_openai.proxy.domain.errors import ErrorCode, RequestError
from triton_openai.proxy.http_server.lingering import LingeringClose

HEADERS = {b"content-type": b"application/json", b"connection": b"close"}
MOST_HEAD_BYTES = 65_536
MOST_URL_BYTES = 8_192
MOST_FIELDS = 128  # the same limit as in `websockets`
MOST_PIPELINED = 32  # requests that wait for the response to an earlier one
FREE_PIECES = 1_000  # of a body
LEAST_PIECE_BYTES = 64  # on average, with more pieces than that


class TooMuch(Exception):
    """Raised in a callback, stops the parser. uvicorn then calls `send_400_response`."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.refusal = (code, message)


class BoundedParsing(LingeringClose):
    _head_bytes = 0
    _pieces = 0
    _body_bytes = 0
    _too_much: TooMuch | None = None

    def on_message_begin(self) -> None:
        self._head_bytes = 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        if len(self.url) > MOST_URL_BYTES:
            self.stop_parsing(
                ErrorCode.URI_TOO_LONG,
                f"The request's target has more than {MOST_URL_BYTES} bytes.",
            )

    def on_header(self, name: bytes, value: bytes) -> None:
        super().on_header(name, value)
        self._head_bytes += len(name) + len(value)
        if self._head_bytes > MOST_HEAD_BYTES:
            self.stop_parsing(
                ErrorCode.HEADER_FIELDS_TOO_LARGE,
                f"The request's head has more than {MOST_HEAD_BYTES} bytes.",
            )
        if len(self.headers) > MOST_FIELDS:
            self.stop_parsing(
                ErrorCode.HEADER_FIELDS_TOO_LARGE,
                f"The request's head has more than {MOST_FIELDS} fields.",
            )

    def on_headers_complete(self) -> None:
        if len(self.pipeline) >= MOST_PIPELINED:
            self.stop_parsing(
                ErrorCode.TOO_MANY_PIPELINED,
                f"More than {MOST_PIPELINED} requests wait on this connection.",
            )
        self._pieces = self._body_bytes = 0
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._pieces += 1
        self._body_bytes += len(body)
        if self._pieces > max(FREE_PIECES, self._body_bytes // LEAST_PIECE_BYTES):
            self.stop_parsing(
                ErrorCode.BODY_IN_SMALL_PIECES,
                f"The body came in more than {FREE_PIECES} pieces of less than "
                f"{LEAST_PIECE_BYTES} bytes on average.",
            )
        super().on_body(body)

    def send_400_response(self, msg: str) -> None:
        if self._too_much is None:
            self.refuse(ErrorCode.INVALID_HTTP, msg)
        else:
            self.refuse(*self._too_much.refusal)

    def stop_parsing(self, code: ErrorCode, message: str) -> None:
        self._too_much = TooMuch(code, message)
        raise self._too_much

    @property
    def is_answering(self) -> bool:
        """Whether the last response has begun or its request is complete; False after its end."""
        cycle = self.cycle
        if cycle is None or cycle.response_complete:
            return False
        return cycle.response_started or not cycle.more_body

    def refuse(self, code: ErrorCode, message: str) -> None:
        """Answers without the application; if `is_answering`, or lingering, it only closes."""
        from triton_openai.proxy.api.errors import body_of

        if self.is_answering or self.is_lingering:
            self.transport.close()
            return
        body = json.dumps(body_of(RequestError(message, code=code, param=None))).encode()
        head = {**dict(self.server_state.default_headers), **HEADERS}
        fields = b"".join(b"%b: %b\r\n" % field for field in head.items())
        length = b"content-length: %d\r\n\r\n" % len(body)
        self.transport.write(STATUS_LINE[code.status] + fields + length + body)
        self.close_after_response()
