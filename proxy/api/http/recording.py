"""Keeps what was asked and answered: for the journal and the log at `debug` the bytes, as they pass
through a Tap; for spans what the record shows of them. Called by `application`.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable
from datetime import datetime, timezone
from functools import partial
from time import perf_counter

import orjson
import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from proxy.api.http.route_scopes import ROUTES
from proxy.domain.errors import ProxyError
from proxy.domain.identity import Caller, current_caller
from proxy.domain.record import running_record
from proxy.journal.journal import LARGEST, Journal, Outcome, Recorded
from proxy.telemetry.kept_content import HeldBytes, fields_of, may_be_kept
from proxy.telemetry.traces.messages import TracedContent

logger = structlog.get_logger(__name__)
CONTENT = "content"
MOST_LOGGED = 200_000  # bytes of a request and its answer; what is larger has a line without them
OVERHEAD = 2_000  # bytes of a record in memory, besides those of request and answer
# Routes whose callers can refuse with `store: false`. The WebSocket is not tapped.
IMAGE = re.compile(rb"(data:image\\?/\w+;base64,)[\w+/=\\]+", re.ASCII)  # JSON may have \/ for /
PATHS = frozenset(path for path, route in ROUTES.items() if route.is_recorded)


class Tap:
    """hold: whether so many bytes more may be kept. lost: why something is missing in them."""

    def __init__(self, most: int, hold: Callable[[int], bool]) -> None:
        self._most = most
        self._hold = hold
        self._body: list[bytes] = []
        self._answer: list[bytes] = []
        self._began = perf_counter()
        self.at = datetime.now(timezone.utc)
        self.held = 0
        self.status: int | None = None
        self.first_byte_s: float | None = None
        self.is_complete = False
        self.lost: Outcome | None = None
        self._hold_more(OVERHEAD)

    @property
    def body(self) -> bytes:
        """Without the bytes of images."""
        body = b"".join(self._body)
        return IMAGE.sub(rb"\1", body) if b";base64," in body else body

    @property
    def answer(self) -> bytes:
        return b"".join(self._answer)

    @property
    def duration_s(self) -> float:
        return perf_counter() - self._began

    async def run(self, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        """Runs the application for one request."""

        async def tapped_receive() -> Message:
            message = await receive()
            if message["type"] == "http.request":
                self._keep(self._body, message.get("body", b""))
            return message

        async def tapped_send(message: Message) -> None:
            if message["type"] == "http.response.start":
                self.status = message["status"]
            elif message["type"] == "http.response.body":
                self._sent(message.get("body", b""))
                self.is_complete = not message.get("more_body", False)
            await send(message)

        try:
            await app(scope, tapped_receive, tapped_send)
        except ProxyError as error:
            # the application writes the body, whose message may name the caller's fields
            if self.status is None:
                self.status, self.is_complete = error.code.status, True
                self._sent(orjson.dumps({"error": {"code": error.code.value}}))
            raise

    def _sent(self, data: bytes) -> None:
        if data and self.first_byte_s is None:
            self.first_byte_s = self.duration_s
        self._keep(self._answer, data)

    def _keep(self, parts: list[bytes], data: bytes) -> None:
        if self.lost is None and self._hold_more(len(data)):
            parts.append(bytes(data))

    def _hold_more(self, size: int) -> bool:
        if self.held + size > self._most:
            self.lost = Outcome.TOO_LARGE
        elif not self._hold(size):
            self.lost = Outcome.OVERLOADED
        else:
            self.held += size
        return self.lost is None


class Recording:
    """Inside of Idempotency-Keys, so that each generation is recorded once.

    logs_content: at the level `debug`, without requests with `store: false`. held: of this process,
    for spans.
    """

    def __init__(
        self, app: ASGIApp, *, journal: Journal | None, logs_content: bool, held: HeldBytes | None
    ) -> None:
        self._app = app
        self._journal = journal
        self._logs_content = logs_content
        self._held = held
        self._has_warned = False

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        app = self._app
        if scope["path"] in PATHS and scope["method"] == "POST":
            if self._held is not None:
                app = partial(_trace, app, TracedContent(self._held))
            if self._logs_content and logger.is_enabled_for(logging.DEBUG):
                app = partial(_log, app)
            caller = current_caller.get()
            if caller.records and self._journal is None:
                self._warn(caller)
            elif caller.records and self._journal is not None and self._journal.wants():
                app = partial(_record, app, self._journal, caller)
        return app(scope, receive, send)

    def _warn(self, caller: Caller) -> None:
        if not self._has_warned:
            logger.warning(
                "a tenant's requests should be recorded, and there is no folder for them",
                tenant=caller.tenant,
                advice="set RECORD_DIR, or `triton-openai tenants update NAME --no-records`",
            )
        self._has_warned = True


async def _trace(
    app: ASGIApp, content: TracedContent, scope: Scope, receive: Receive, send: Send
) -> None:
    record = running_record()
    record.content = content
    try:
        await app(scope, receive, send)
    finally:
        content.has_ended = True
        if record.ended is not None:  # its spans are written: the next reader's answer went on
            content.give_back()


async def _log(app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    tap = Tap(MOST_LOGGED, lambda _: True)
    try:
        await tap.run(app, scope, receive, send)
    finally:
        fields = fields_of(tap.body)
        if tap.lost is not None:
            logger.debug(CONTENT, lost=tap.lost.value)
        elif fields is not None and may_be_kept(fields):
            logger.debug(CONTENT, request=fields, answer=tap.answer.decode("utf-8", "replace"))


async def _record(
    app: ASGIApp, journal: Journal, caller: Caller, scope: Scope, receive: Receive, send: Send
) -> None:
    tap = Tap(LARGEST, journal.hold)
    try:
        await tap.run(app, scope, receive, send)
    finally:
        if tap.lost is not None:
            journal.settle(tap.held, tap.lost)
        else:
            first_s = tap.first_byte_s
            recorded = Recorded(
                at=tap.at,
                tenant=caller.tenant,
                key_id=caller.key_id,
                request_id=running_record().request_id,
                path=scope["path"],
                body=tap.body.decode("utf-8", "replace"),
                status=tap.status,
                answer=tap.answer.decode("utf-8", "replace"),
                is_complete=tap.is_complete,
                ttft_ms=None if first_s is None else round(first_s * 1000, 1),
                duration_ms=round(tap.duration_s * 1000, 1),
            )
            journal.add(recorded, tap.held)
