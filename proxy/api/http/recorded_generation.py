"""Runs the application for a recording, in place of a connection."""

from __future__ import annotations

import re

import structlog
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from proxy.api import errors
from proxy.api.protocols import ERROR_FORMS
from proxy.domain.record import running_record
from proxy.state.answer import Head
from proxy.state.relay import RunningAnswer

logger = structlog.get_logger(__name__)

# Added again for each response.
NOT_RECORDED = frozenset(
    {"connection", "date", "server", "transfer-encoding", "x-request-id"}
    | {form.id_header for form in ERROR_FORMS if form.id_header is not None}
)
# Of the first response: how long that request waited.
OWN = frozenset({"x-queue-position", "x-queue-wait"})
NOT_RECORDED_PREFIX = "x-ratelimit-"
END = b"\n\n"
# `: name <JSON string, list or object>`: data that the client asked for (stream_format.Annotation)
_ANNOTATION = re.compile(rb': \w+ ["\[{]')


class Generation:
    """One request, whose body has been read. It is not disconnected before it is abandoned."""

    def __init__(self, app: ASGIApp, scope: Scope, body: bytes) -> None:
        self._app = app
        self._scope = {**scope}
        self._body: bytes | None = body

    async def __call__(self, running: RunningAnswer) -> None:
        record = running_record()
        numbering: EventNumbering | None = None

        async def abandoned() -> Message:
            await running.abandoned.wait()
            return {"type": "http.disconnect"}

        async def keep(message: Message) -> None:
            nonlocal numbering
            if message["type"] == "http.response.start":
                head = _head(message, self._scope, record.request_id)
                numbering = EventNumbering() if head.has_events else None
                running.is_private = running.is_private or record.is_private
                running.begin(head)
                return
            data, is_last = message.get("body", b""), not message.get("more_body", False)
            parts, comments = [bytes(data)] if data else [], list[bytes]()
            if numbering is not None:
                parts, comments = numbering.push(data)
            if numbering is not None and is_last:
                parts += numbering.flush()
            for part in parts:
                await running.append(part)
            if comments:
                running.notice(b"".join(comments))
            if is_last:
                running.has_failed = running.has_failed or record.has_failed
                running.complete()

        try:
            await self.run(self._scope, abandoned, keep)
        except ClientDisconnect:
            return
        except Exception as error:
            if running.head is not None:
                logger.exception(
                    "an answer with an Idempotency-Key ended early",
                    advice="this is a bug of the proxy: report it with this line",
                )
                return
            await errors.response_of(error, self._scope["path"])(self._scope, abandoned, keep)

    async def run(self, scope: Scope, later: Receive, send: Send) -> None:
        """later: what the application receives after the body."""

        async def receive() -> Message:
            body, self._body = self._body, None
            if body is None:
                return await later()
            return {"type": "http.request", "body": body, "more_body": False}

        await self._app(scope, receive, send)

    def discard(self) -> None:
        """It will not run."""
        self._body = None


def _head(message: Message, scope: Scope, request_id: str) -> Head:
    headers, own = [], []
    for raw_name, raw_value in message.get("headers", ()):
        name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1")
        if name in OWN:
            own.append((name, value))
        elif name not in NOT_RECORDED and not name.startswith(NOT_RECORDED_PREFIX):
            headers.append((name, value))
    return Head(
        status=message["status"],
        headers=tuple(headers),
        own_headers=tuple(own),
        request_id=request_id,
        route=getattr(scope.get("route"), "path", ""),
    )


class EventNumbering:
    """Numbers the events of an SSE stream, and separates them from comments.

    events: how many there were. Bytes may be cut anywhere; lines must end with `\\n`.
    """

    def __init__(self) -> None:
        self.events = 0
        self._rest = b""
        self._annotations = b""

    def push(self, data: bytes) -> tuple[list[bytes], list[bytes]]:
        """Returns (one part for each complete event, comments that are not kept).

        A part is the event with its `id: n`, and the annotations before it.
        """
        blocks = (self._rest + data).split(END)
        self._rest = blocks.pop()
        parts: list[bytes] = []
        comments: list[bytes] = []
        for block in blocks:
            if not block.startswith(b":"):
                parts.append(self._numbered(block + END))
            elif _ANNOTATION.match(block):
                self._annotations += block + END
            else:
                comments.append(block + END)
        return parts, comments

    def flush(self) -> list[bytes]:
        """What the stream ended with, without a complete event."""
        rest = self._annotations + self._rest
        self._annotations = self._rest = b""
        return [rest] if rest else []

    def _numbered(self, event: bytes) -> bytes:
        self.events += 1
        annotations, self._annotations = self._annotations, b""
        return b"%sid: %d\n%s" % (annotations, self.events, event)
