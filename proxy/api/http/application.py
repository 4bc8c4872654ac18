"""The application: what every request passes on its way to its route, around FastAPI.

FastAPI would put middleware inside its own, and each layer would handle every chunk of a stream. So
this is one step, which wraps `send` once, and through which chunks pass untouched.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from functools import cache, partial
from http import HTTPStatus
from secrets import token_hex
from time import perf_counter

from fastapi import APIRouter, FastAPI, Request
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.errors import ServerErrorMiddleware
from starlette.requests import ClientDisconnect
from starlette.routing import WebSocketRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from proxy import __version__
from proxy.access.limits.caller_meters import Standings
from proxy.access.limits.request_limiter import RequestLimiter
from proxy.access.start_gate import StartGate
from proxy.api import errors
from proxy.api.http import own_headers
from proxy.api.http.authentication import ADMIT, Authentication
from proxy.api.http.hosts import HostPolicy
from proxy.api.http.idempotency import KEY_NAMES, Idempotency, IdempotencyParts
from proxy.api.http.recording import Recording
from proxy.api.http.route_scopes import RouteScopes
from proxy.api.http.typed_route import TypedRoute
from proxy.api.manifest import Need, Open
from proxy.api.openapi.document import NAME
from proxy.api.openapi.responses import HEADERS
from proxy.api.protocols import ID_HEADERS
from proxy.domain import identity
from proxy.domain.errors import ErrorCode, ProxyError, RequestError, in_short
from proxy.domain.identity import ANYONE, ANYONE_BUT_ADMINS, Caller, current_caller
from proxy.domain.record import RequestRecord, StageName
from proxy.journal.journal import Journal
from proxy.telemetry.kept_content import HeldBytes
from proxy.telemetry.metrics import Metrics
from proxy.telemetry.request_log import RequestLog

HEALTH_CHECKS = ("/health", "/ping")  # a proxy that is not ready refuses nobody
UNKNOWN = "unknown"
CORS_DONE = "cors_done"  # in a scope
USABLE_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")
NOSNIFF = (b"x-content-type-options", b"nosniff")
DENIAL = "websocket.http.response"  # ASGI's extension for a refused handshake
REFUSED = 1008  # a refused handshake where the server lacks the extension
NO_ADMIN = (
    "Administration needs a key, and this server has none. Start it with KEY_PEPPER, a long random "
    "value: the first start makes an admin key. ADMIN=on opens it to everybody on this machine."
)
EXPOSED_HEADERS = tuple(name for name, header in HEADERS.items() if header.is_exposed)


class Application(FastAPI):
    """Gives each request an id, its record, a count in the metrics, and a last catch for errors;
    checks its host and its caller. Inside of that are Idempotency-Keys and recording.

    The id is the caller's `x-request-id` if it is usable, else a new one. Every response has it. A
    POST starts in its turn; GET requests cost too little to wait. HEAD is handled like GET: the
    server drops the body, because the scope that it made still says HEAD. `/v1/models/` is handled
    like `/v1/models`: a redirect would echo the caller's Host header.

    A POST to a fixed path of a TypedRoute goes straight to its endpoint: FastAPI does nothing
    useful for it, but needs as much time as the endpoint itself. FastAPI has these routes as well,
    for its OpenAPI document and for wrong methods.

    Args:
        running: what runs as long as the application serves.
        authentication: None where there are no keys. Nobody may use the administration then, unless
            `opens_administration`: a fuzzer that follows /openapi.json would drain the server.
        keyed: None where there are no Idempotency-Keys.
        origins: of web pages that may call the API (CORS). Keys travel in a header, not in cookies.
        content: of spans; None where they have none.
    """

    def __init__(
        self,
        running: Callable[[FastAPI], AbstractAsyncContextManager[None]],
        *,
        metrics: Metrics,
        log: RequestLog,
        limiter: RequestLimiter,
        gate: StartGate | None = None,
        scopes: RouteScopes | None = None,
        hosts: HostPolicy | None = None,
        authentication: Authentication | None = None,
        opens_administration: bool = False,
        keyed: IdempotencyParts | None = None,
        journal: Journal | None = None,
        logs_content: bool = False,
        content: HeldBytes | None = None,
        origins: tuple[str, ...] = (),
        charge: Callable[[Caller, Standings], Awaitable[None]] | None = None,
    ) -> None:
        super().__init__(
            title=NAME,
            version=__version__,
            redirect_slashes=False,
            openapi_url=None,  # `pages` serves the document, without a CDN
            lifespan=running,
            exception_handlers={HTTPException: errors.routing_error},
        )
        self._metrics = metrics
        self._log = log
        self._limiter = limiter
        self._charge = charge
        self._gate = gate or StartGate()
        self._scopes = scopes or RouteScopes()
        self._hosts = hosts or HostPolicy(("*",))
        self._authentication = authentication
        self._opens_administration = opens_administration
        self._posts: dict[str, TypedRoute] = {}
        self._sockets: list[str] = []
        self._responses = cache(metrics.http_responses.labels)
        self._recording = Recording(
            self._route, journal=journal, logs_content=logs_content, held=content
        )
        self._idempotency = (
            None if keyed is None else Idempotency(self._recording, keyed, self._scopes)
        )
        self._cors: CORSMiddleware | None = None
        if origins:
            self._cors = CORSMiddleware(
                self,
                allow_origins=origins,
                allow_methods=["GET", "POST"],
                allow_headers=["*"],
                expose_headers=EXPOSED_HEADERS,
            )

    def take_routes(self, router: APIRouter) -> None:
        """FastAPI's `include_router` would make each route once more, at the first request: that
        holds the event loop for 40 ms.
        """
        self.router.routes += router.routes
        for route in router.routes:
            if isinstance(route, APIRoute):
                route.unique_id = "_".join([*map(str, route.tags), route.name])
            if isinstance(route, TypedRoute) and route.is_fixed_post:
                self._posts[route.path] = route
            if isinstance(route, WebSocketRoute):
                self._sockets.append(route.path)

    def build_middleware_stack(self) -> ASGIApp:
        """Without ServerErrorMiddleware, which would answer errors before `__call__` sees them."""
        outermost = super().build_middleware_stack()
        if not isinstance(outermost, ServerErrorMiddleware):
            raise TypeError(f"FastAPI's outermost middleware is {type(outermost).__name__}")
        return outermost.app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._cors is not None and CORS_DONE not in scope:
            # outermost, so that a browser may read errors, too; it calls this application again
            await self._cors({**scope, CORS_DONE: True}, receive, send)
            return
        if scope["type"] == "lifespan":
            await super().__call__(scope, receive, send)
            return
        if (path := scope["path"]).endswith("/") and path != "/":
            scope = {**scope, "path": path[:-1]}
        outer_caller = current_caller.set(current_caller.get())
        try:
            if scope["type"] != "http":
                if await self._may_connect(scope, receive, send):
                    await super().__call__(scope, receive, send)
                return
            if scope["method"] == "POST":
                await self._gate.wait()
            elif scope["method"] == "HEAD":
                scope = {**scope, "method": "GET"}
            method, path = in_short(scope["method"]), in_short(scope["path"])
            fields = dict(reversed(scope["headers"]))  # the first of equal names
            request_id = fields.get(b"x-request-id", b"").decode("latin-1")
            if not USABLE_ID.fullmatch(request_id):
                request_id = new_request_id()
            with self._log.recorded(
                method, path, request_id=request_id, headers=scope["headers"]
            ) as record:

                def send_with_head(message: Message) -> Awaitable[None]:
                    if message["type"] == "http.response.start":
                        return self._send_head(message, scope, record, send)
                    return send(message)

                try:
                    route = self._scopes.at(scope["path"])
                    record.operation = route.operation
                    self._hosts.check(fields.get(b"host"))
                    await self._admit(scope, route.need, record)
                    caller, standings = current_caller.get(), None
                    if caller.has_limits:
                        record.standings = standings = Standings()
                    app: ASGIApp = self._recording
                    if method == "POST" and not KEY_NAMES.isdisjoint(fields):
                        app = self._idempotency or app
                    if standings is None or not route.counts:
                        await app(scope, receive, send_with_head)
                    else:
                        reads = method == "GET" or route.only_reads
                        async with self._limiter.counted(caller, standings, only_reads=reads):
                            await app(scope, receive, send_with_head)
                            standings.is_refused = (record.status or 0) >= 400
                except ClientDisconnect:
                    pass  # the client disconnected while its body was read
                except Exception as error:
                    if record.status is not None:  # the answer has begun
                        raise
                    await errors.response_of(error, path)(scope, receive, send_with_head)
                await self._charge_refusal(record)
        finally:
            current_caller.reset(outer_caller)

    async def _charge_refusal(self, record: RequestRecord) -> None:
        """Counts a request that was refused after a call in the sandbox."""
        standings, status = record.standings, record.status or 0
        if standings is None or not standings.is_costly or self._charge is None:
            return
        if 400 <= status < 500 and status != ErrorCode.RATE_LIMIT_EXCEEDED.status:
            await self._charge(current_caller.get(), standings)

    async def _admit(self, scope: Scope, need: Need, record: RequestRecord) -> None:
        """Sets `current_caller`.

        Raises:
            ProxyError: the caller is unknown, or may not use the route.
        """
        if self._authentication is None:
            if need is identity.Scope.ADMIN and not self._opens_administration:
                raise RequestError(NO_ADMIN, code=ErrorCode.INSUFFICIENT_SCOPE)
            # an application around this one may know who calls
            if not self._opens_administration and current_caller.get() is ANYONE:
                current_caller.set(ANYONE_BUT_ADMINS)
        elif need is not Open.ANYBODY:
            began, error = perf_counter(), None
            try:
                current_caller.set(await self._authentication.caller(scope, need, record))
            except ProxyError as refusal:
                error = refusal
                raise
            finally:
                record.passed(StageName.ACCESS, began, error)

    async def _may_connect(self, scope: Scope, receive: Receive, send: Send) -> bool:
        """Refuses the handshake of a WebSocket whose host, caller or path is wrong."""
        fields, path = dict(reversed(scope["headers"])), scope["path"]
        admit = partial(self._admit, scope, self._scopes.at(path).need)
        try:
            self._hosts.check(fields.get(b"host"))
            await admit(RequestRecord())
            if path not in self._sockets:
                raise errors.unknown_url("WEBSOCKET", path, self._sockets)
        except ProxyError as error:
            headers = scope["headers"]
            with self._log.recorded("WEBSOCKET", in_short(path), headers=headers) as record:
                record.status = error.code.status
                response = errors.response_of(error, path)
            if DENIAL in scope.get("extensions", {}):
                await response(scope, receive, send)
            else:
                await send({"type": "websocket.close", "code": REFUSED})
            return False
        scope[ADMIT] = admit
        return True

    async def _send_head(
        self, message: Message, scope: Scope, record: RequestRecord, send: Send
    ) -> None:
        record.status = status = message["status"]
        headers = [*message["headers"]]
        if (standings := record.standings) is not None:
            if not standings.are_known:
                await self._limiter.look(current_caller.get(), standings)
            headers += own_headers.limit_headers(standings)
        if record.request_trace is not None:
            headers.append((b"x-request-trace", record.request_trace.encode()))
        path, request_id = scope["path"], record.request_id.encode()
        for prefix, name in ID_HEADERS:
            if path.startswith(prefix):
                headers.append((name, request_id))
        if b"cache-control" not in dict(headers):  # it is one caller's
            headers.append((b"cache-control", b"no-store"))
        message["headers"] = [*headers, NOSNIFF, (b"x-request-id", request_id)]
        route = getattr(scope.get("route"), "path", "unmatched")
        self._responses(route, status).inc()
        if status >= HTTPStatus.BAD_REQUEST and not path.startswith(HEALTH_CHECKS):
            # without an error of ours, such as in a replayed response, the reason is unknown
            self._metrics.rejections.labels(record.model or "", record.error or UNKNOWN).inc()
        await send(message)

    def _route(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        route = self._posts.get(scope["path"]) if scope["method"] == "POST" else None
        if route is None:
            return super().__call__(scope, receive, send)
        scope["route"] = route
        return route.answer_post(Request(scope, receive), send)


def new_request_id() -> str:
    return f"req_{token_hex(16)}"
