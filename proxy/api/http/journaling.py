"""Layers that keep what was asked and answered: for the journal and the log at `debug` the bytes,
as they pass through a Tap; for spans the bytes of the request alone.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from datetime import datetime, timezone
from time import perf_counter

import orjson
import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from proxy.domain.errors import ProxyError
from proxy.domain.identity import Caller, current_caller
from proxy.domain.record import current_record, running_record
from proxy.journal.journal import LARGEST, Journal, Outcome, Recorded
from proxy.telemetry.kept_content import HeldBytes, fields_of, may_be_kept
from proxy.telemetry.traces.messages import TracedContent

logger = structlog.get_logger(__name__)
CONTENT = "content"
MOST_LOGGED = 200_000  # bytes of a request and its answer; what is larger has a line without them
OVERHEAD = 2_000  # bytes of a record in memory, besides those of request and answer
# Routes whose callers can refuse with `store: false`. The WebSocket is not tapped.
PATHS = frozenset(("/v1/chat/completions", "/v1/completions"))


def is_tapped(scope: Scope) -> bool:
    return scope["type"] == "http" and scope["path"] in PATHS and scope["method"] == "POST"


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
        return b"".join(self._body)

    @property
    def answer(self) -> bytes:
        return b"".join(self._answer)

    @property
    def duration_s(self) -> float:
        return perf_counter() - self._began

    async def run(self, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        """The application, for one request."""
        try:
            await app(scope, self._receiving(receive), self._sending(send))
        except ProxyError as error:
            self._refused(error)
            raise

    def _receiving(self, receive: Receive) -> Receive:
        async def tapped() -> Message:
            message = await receive()
            if message["type"] == "http.request":
                self._keep(self._body, message.get("body", b""))
            return message

        return tapped

    def _sending(self, send: Send) -> Send:
        async def tapped(message: Message) -> None:
            if message["type"] == "http.response.start":
                self.status = message["status"]
            elif message["type"] == "http.response.body":
                self._sent(message.get("body", b""))
                self.is_complete = not message.get("more_body", False)
            await send(message)

        return tapped

    def _refused(self, error: ProxyError) -> None:
        """Notes a refusal, whose body an outer layer writes. Its message may name the caller's."""
        if self.status is None:
            self.status, self.is_complete = error.code.status, True
            self._sent(orjson.dumps({"error": {"code": error.code.value}}))

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


class ContentLog:
    """Beside the journal's layer. Requests with `store: false` are not logged."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not (is_tapped(scope) and logger.is_enabled_for(logging.DEBUG)):
            await self._app(scope, receive, send)
            return
        tap = Tap(MOST_LOGGED, lambda _: True)
        try:
            await tap.run(self._app, scope, receive, send)
        finally:
            _log(tap)


def _log(tap: Tap) -> None:
    if tap.lost is not None:
        logger.debug(CONTENT, lost=tap.lost.value)
        return
    fields = fields_of(tap.body)
    if fields is not None and may_be_kept(fields):
        logger.debug(CONTENT, request=fields, answer=tap.answer.decode("utf-8", "replace"))


class TracesContent:
    """Beside the journal's layer. The record adds the answer's events. held: of this process."""

    def __init__(self, app: ASGIApp, *, held: HeldBytes) -> None:
        self._app = app
        self._held = held

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        record = current_record.get()
        if record is None or not is_tapped(scope):
            await self._app(scope, receive, send)
            return
        record.content = content = TracedContent(self._held)

        async def tapped() -> Message:
            message = await receive()
            if message["type"] == "http.request":
                content.add_body(message.get("body", b""))
            return message

        try:
            await self._app(scope, tapped, send)
        finally:
            content.has_ended = True
            if record.ended is not None:  # its spans are written: the next reader's answer went on
                content.give_back()


class Journaling:
    """Inside the layer of idempotency keys, so that each generation is recorded once."""

    def __init__(self, app: ASGIApp, *, journal: Journal | None) -> None:
        self._app = app
        self._journal = journal
        self._has_warned = False

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        caller = current_caller.get()
        if not (caller.records and is_tapped(scope)):
            return self._app(scope, receive, send)
        if self._journal is None:
            self._warn(caller)
            return self._app(scope, receive, send)
        if not self._journal.wants():
            return self._app(scope, receive, send)
        return self._recorded(self._journal, caller, scope, receive, send)

    async def _recorded(
        self, journal: Journal, caller: Caller, scope: Scope, receive: Receive, send: Send
    ) -> None:
        tap = Tap(LARGEST, journal.hold)
        try:
            await tap.run(self._app, scope, receive, send)
        finally:
            if tap.lost is not None:
                journal.settle(tap.held, tap.lost)
            else:
                journal.add(_recorded(tap, caller, scope["path"]), tap.held)

    def _warn(self, caller: Caller) -> None:
        if not self._has_warned:
            logger.warning(
                "a tenant's requests should be recorded, and there is no folder for them",
                tenant=caller.tenant,
                advice="set RECORD_DIR, or `triton-openai tenants update NAME --no-records`",
            )
        self._has_warned = True


def _recorded(tap: Tap, caller: Caller, path: str) -> Recorded:
    first_s = tap.first_byte_s
    return Recorded(
        at=tap.at,
        tenant=caller.tenant,
        key_id=caller.key_id,
        request_id=running_record().request_id,
        path=path,
        body=tap.body.decode("utf-8", "replace"),
        status=tap.status,
        answer=tap.answer.decode("utf-8", "replace"),
        is_complete=tap.is_complete,
        ttft_ms=None if first_s is None else round(first_s * 1000, 1),
        duration_ms=round(tap.duration_s * 1000, 1),
    )
