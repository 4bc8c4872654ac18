"""ASGI middleware around every request, listed in `layers`: RequestContext, and CORS outside it."""

from __future__ import annotations

import re
from http import HTTPStatus
from secrets import token_hex

import structlog
from prometheus_client import Counter
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from proxy.access.start_gate import StartGate
from proxy.api import errors
from proxy.api.http import generation_headers, idempotency
from proxy.api.http.rate_limit_headers import EXPOSED
from proxy.domain.errors import in_short
from proxy.domain.record import RequestRecord
from proxy.telemetry.metrics import Metrics
from proxy.telemetry.request_log import REQUEST_LOG, RequestLog

HEALTH_CHECKS = ("/health", "/ping")  # a proxy that is not ready refuses nobody
UNKNOWN = "unknown"
USABLE_ID = re.compile(rb"[A-Za-z0-9._:-]{1,128}")


class RequestContext:
    """Every request passes it first. A POST starts in its turn, HEAD is handled like GET, and
    `/v1/models/` like `/v1/models`. Gives each request an id, its record, a count in the metrics,
    and a last catch for errors.

    The id is the caller's `x-request-id` if it is usable, else a new one. Every response has it.
    GET requests cost too little to wait for their turn. The server drops the body of an answer to
    HEAD, because the scope that it made still says HEAD. A redirect to the path without a slash
    would echo the caller's Host header.
    """

    def __init__(self, app: ASGIApp, *, gate: StartGate, metrics: Metrics, log: RequestLog) -> None:
        self._app = app
        self._gate = gate
        self._metrics = metrics
        self._log = log
        self._counters: dict[tuple[str, int], Counter] = {}
        self._rejections: dict[tuple[str, str], Counter] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if (path := scope["path"]).endswith("/") and path != "/":
            scope = {**scope, "path": path[:-1]}
        scope[REQUEST_LOG] = self._log
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if scope["method"] == "POST":
            await self._gate.wait()
        elif scope["method"] == "HEAD":
            scope = {**scope, "method": "GET"}
        headers, request_id = scope["headers"], _request_id(scope)
        method, path = in_short(scope["method"]), in_short(scope["path"])
        structlog.contextvars.bind_contextvars(request_id=request_id)
        has_started = False

        async def send_with_id(message: Message) -> None:
            nonlocal has_started
            if message["type"] == "http.response.start":
                has_started = True
                message["headers"] = [*message["headers"], (b"x-request-id", request_id.encode())]
                record.status = message["status"]
                self._count(scope, record, message["status"])
            await send(message)

        try:
            with self._log.recorded(method, path, request_id=request_id, headers=headers) as record:
                try:
                    await self._app(scope, receive, send_with_id)
                except ClientDisconnect:
                    pass  # the client disconnected while its body was read
                except Exception as error:
                    if has_started:
                        raise
                    await errors.response_of(error)(scope, receive, send_with_id)
        finally:
            structlog.contextvars.unbind_contextvars("request_id")

    def _count(self, scope: Scope, record: RequestRecord, status: int) -> None:
        route = getattr(scope.get("route"), "path", "unmatched")
        counter = self._counters.get((route, status))
        if counter is None:
            counter = self._metrics.http_responses.labels(route, status)
            self._counters[route, status] = counter
        counter.inc()
        if status >= HTTPStatus.BAD_REQUEST and not scope["path"].startswith(HEALTH_CHECKS):
            self._count_rejection(record.model or "", record.error)

    def _count_rejection(self, model: str, reason: str | None) -> None:
        """reason: None for a response that is no error of ours, such as a replayed one."""
        place = model, reason or UNKNOWN
        counter = self._rejections.get(place)
        if counter is None:
            counter = self._rejections[place] = self._metrics.rejections.labels(*place)
        counter.inc()


def _request_id(scope: Scope) -> str:
    for name, value in scope["headers"]:
        if name == b"x-request-id" and USABLE_ID.fullmatch(value):
            return bytes(value).decode()
    return new_request_id()


def new_request_id() -> str:
    return f"req_{token_hex(16)}"


EXPOSED_HEADERS = (
    *EXPOSED,
    "x-request-id",
    "retry-after",
    "retry-after-ms",
    "x-should-retry",
    "x-attempts",
    "x-resends",
    "x-continued",
    "x-unenforced-keywords",
    "x-fallback-from",
    *generation_headers.QUEUE,
    "x-priority-capped",
    *generation_headers.LIFECYCLE,
    *idempotency.EXPOSED,
)


def cross_origin_layers(origins: tuple[str, ...]) -> list[Middleware]:
    """Lets pages of other origins call the API (CORS).

    Outermost, so that a browser may read errors too. Keys travel in a header, not in cookies.
    """
    if not origins:
        return []
    return [
        Middleware(
            CORSMiddleware,
            allow_origins=origins,
            allow_methods=["GET", "POST"],
            allow_headers=["*"],
            expose_headers=EXPOSED_HEADERS,
        )
    ]
