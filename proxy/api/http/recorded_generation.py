"""Runs the application for a recording, in place of a connection."""

from __future__ import annotations

import structlog
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from proxy.api import errors
from proxy.domain.record import RequestRecord, running_record
from proxy.state.answer import Head
from proxy.state.event_numbering import EventNumbering
from proxy.state.relay import RunningAnswer

logger = structlog.get_logger(__name__)

# Added again for each response.
NOT_RECORDED = frozenset({"connection", "date", "server", "transfer-encoding", "x-request-id"})
# Of the first response: how long that request waited.
OWN = frozenset({"x-queue-position", "x-queue-wait"})
NOT_RECORDED_PREFIX = "x-ratelimit-"


class Generation:
    """One request, whose body has been read. It is not disconnected before it is abandoned."""

    def __init__(self, app: ASGIApp, scope: Scope, body: bytes) -> None:
        self._app = app
        self._scope = {**scope}
        self._body: bytes | None = body

    async def __call__(self, running: RunningAnswer) -> None:
        recorder = Recorder(running, self._scope, running_record())

        async def abandoned() -> Message:
            await running.abandoned.wait()
            return {"type": "http.disconnect"}

        try:
            await self.run(self._scope, abandoned, recorder)
        except ClientDisconnect:
            return
        except Exception as error:
            if running.head is not None:
                logger.exception(
                    "an answer with an Idempotency-Key ended early",
                    advice="this is a bug of the proxy: report it with this line",
                )
                return
            await errors.response_of(error)(self._scope, abandoned, recorder)

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


class Recorder:
    """The `send` of a generation. record: of the request that began it."""

    def __init__(self, running: RunningAnswer, scope: Scope, record: RequestRecord) -> None:
        self._running = running
        self._scope = scope
        self._record = record
        self._numbering: EventNumbering | None = None

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._begin(message)
        elif message["type"] == "http.response.body":
            await self._add(message.get("body", b""))
            if not message.get("more_body", False):
                await self._end()

    def _begin(self, message: Message) -> None:
        headers = _recorded(message.get("headers", ()))
        head = Head(
            status=message["status"],
            headers=tuple(each for each in headers if each[0] not in OWN),
            own_headers=tuple(each for each in headers if each[0] in OWN),
            request_id=self._record.request_id,
            route=getattr(self._scope.get("route"), "path", ""),
        )
        self._numbering = EventNumbering() if head.has_events else None
        if self._record.is_private:
            self._running.is_private = True
        self._running.begin(head)

    async def _add(self, data: bytes) -> None:
        if self._numbering is None:
            if data:
                await self._running.append(bytes(data))
            return
        parts, comments = self._numbering.push(data)
        for part in parts:
            await self._running.append(part)
        if comments:
            self._running.notice(b"".join(comments))

    async def _end(self) -> None:
        if self._numbering is not None:
            for part in self._numbering.flush():
                await self._running.append(part)
        running = self._running
        running.has_failed = running.has_failed or self._record.has_failed
        running.complete()


def _recorded(headers: list[tuple[bytes, bytes]]) -> list[tuple[str, str]]:
    named = [(name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in headers]
    return [
        (name, value)
        for name, value in named
        if name not in NOT_RECORDED and not name.startswith(NOT_RECORDED_PREFIX)
    ]
