"""ASGI middleware that finds out who calls, before anything of the body is read.

Where there are no keys, `WithoutKeys` takes its place; `app` decides that.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import lru_cache
from ipaddress import ip_address, ip_network

from prometheus_client import Counter
from starlette.types import ASGIApp, Receive, Send
from starlette.types import Scope as Connection

from proxy.access.authentication.authenticator import Authenticator
from proxy.api import errors
from proxy.api.http.route_scopes import Need, Open, RouteScopes
from proxy.domain.errors import ErrorCode, Forbidden, ProxyError, in_short
from proxy.domain.identity import (
    ANYONE,
    ANYONE_BUT_ADMINS,
    Caller,
    Scope,
    current_caller,
)
from proxy.domain.record import StageName, running_record, stage
from proxy.telemetry.metrics import Metrics
from proxy.telemetry.request_log import REQUEST_LOG, RequestLog

DENIAL = "websocket.http.response"  # ASGI's extension for a refused handshake
REFUSED = 1008  # a refused handshake where the server lacks the extension
_AGAIN = "authenticate_again"  # in the connection's scope

NO_ADMIN = (
    "Administration needs a key, and this server has none. Start it with KEY_PEPPER, a long random "
    "value: the first start prints an admin key. ADMIN=on lets everybody on this machine "
    "administrate."
)

Headers = list[tuple[bytes, bytes]]
Denied = Callable[[str, str, Caller | None, ErrorCode], None]


def no_audit(method: str, path: str, caller: Caller | None, code: ErrorCode) -> None:
    """Notes nothing."""


class Authentication:
    """Sets `current_caller`, or refuses with 401, 403 or 503.

    denied: is called for each refusal of a route that needs the scope `admin`, for the audit log;
    it must not block.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        authenticator: Authenticator,
        metrics: Metrics,
        scopes: RouteScopes,
        denied: Denied = no_audit,
    ) -> None:
        self._app = app
        self._authenticator = authenticator
        self._scopes = scopes
        self._metrics = metrics
        self._denied = denied
        self._outcomes: dict[str, Counter] = {}

    async def __call__(self, scope: Connection, receive: Receive, send: Send) -> None:
        need = Open.ANYBODY if scope["type"] == "lifespan" else self._scopes.of(scope["path"])
        if need is Open.ANYBODY:
            await self._app(scope, receive, send)
            return
        is_socket = scope["type"] == "websocket"
        try:
            with stage(StageName.ACCESS):
                caller = await self._admitted(scope, need)
        except ProxyError as error:
            if not is_socket:
                raise  # RequestContext answers
            await _refuse_handshake(error, scope, receive, send)
            return
        if is_socket:
            scope[_AGAIN] = lambda: self._admitted(scope, need)
        token = current_caller.set(caller)
        _note(caller)
        try:
            await self._app(scope, receive, send)
        finally:
            current_caller.reset(token)

    async def _admitted(self, connection: Connection, need: Need) -> Caller:
        """
        Raises:
            ProxyError: what the authenticator raises, or Forbidden for a missing scope.
        """
        caller = None
        try:
            caller = await self._authenticator.caller(connection["headers"], _peer(connection))
            if need is not Open.CALLER and need not in caller.scopes:
                raise _lacks(need)
        except ProxyError as error:
            self._count(error.code.value)
            if caller is not None:
                _note(caller)
            if need is Scope.ADMIN:
                method = connection.get("method", "WEBSOCKET")
                self._denied(method, in_short(connection["path"]), caller, error.code)
            raise
        self._count("ok")
        return caller

    def _count(self, outcome: str) -> None:
        counter = self._outcomes.get(outcome)
        if counter is None:
            counter = self._outcomes[outcome] = self._metrics.authentications.labels(outcome)
        counter.inc()


class WithoutKeys:
    """Takes the place of Authentication where there are no keys: nobody may administrate. A fuzzer
    that follows /openapi.json, or any program on this machine, would drain the server.
    """

    def __init__(self, app: ASGIApp, *, scopes: RouteScopes) -> None:
        self._app = app
        self._scopes = scopes

    async def __call__(self, scope: Connection, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and self._scopes.of(scope["path"]) is Scope.ADMIN:
            raise Forbidden(NO_ADMIN, code=ErrorCode.INSUFFICIENT_SCOPE, param=None)
        if current_caller.get() is not ANYONE:  # an application around this one knows who calls
            await self._app(scope, receive, send)
            return
        token = current_caller.set(ANYONE_BUT_ADMINS)
        try:
            await self._app(scope, receive, send)
        finally:
            current_caller.reset(token)


async def authenticate_again(connection: Connection) -> None:
    """Sets `current_caller` for the running task; for each message of a long-lived socket.

    Raises:
        ProxyError: the key was revoked since, or has expired.
    """
    again: Callable[[], Awaitable[Caller]] | None = connection.get(_AGAIN)
    if again is not None:
        caller = await again()
        current_caller.set(caller)
        _note(caller)


def _note(caller: Caller) -> None:
    record = running_record()
    record.tenant, record.key_id = caller.tenant, caller.key_id


async def _refuse_handshake(
    error: ProxyError, connection: Connection, receive: Receive, send: Send
) -> None:
    path = in_short(connection["path"])
    log: RequestLog = connection[REQUEST_LOG]
    with log.recorded("WEBSOCKET", path, headers=connection["headers"]) as record:
        record.status = error.code.status
        response = errors.response_of(error)
    if DENIAL in connection.get("extensions", {}):
        await response(connection, receive, send)
    else:
        await send({"type": "websocket.close", "code": REFUSED})


def _peer(connection: Connection) -> str:
    """The address at the other end of the connection; `server` keeps it where uvicorn puts a
    forwarded one into `client`.
    """
    peer = connection.get("peer") or connection.get("client")
    return "" if peer is None else str(peer[0])


def _lacks(need: Need) -> Forbidden:
    return Forbidden(
        f"This API key lacks the scope {need.value!r}, which this route needs.",
        code=ErrorCode.INSUFFICIENT_SCOPE,
        param=None,
    )


SITE_BITS = 64  # of an IPv6 address; a site chooses the other bits freely


def caller_name(scope: Connection) -> str:
    """For what is shared fairly: tenant and key of `current_caller`, its address if it has none."""
    who = current_caller.get()
    return _address(scope) if who.is_shared else f"{who.tenant}/{who.key_id}"


def _address(scope: Connection) -> str:
    """The client's IPv4 address or host name, or the /64 of its IPv6 address; "" if unknown.

    uvicorn has replaced the address of a proxy in FORWARDED_ALLOW_IPS by the one that it forwards.
    """
    client = scope.get("client")
    return "" if client is None else _site(client[0])


@lru_cache(maxsize=4096)
def _site(host: str) -> str:
    try:
        address = ip_address(host)
    except ValueError:
        return host
    if address.version == 4:
        return host
    return str(ip_network((address, SITE_BITS), strict=False))
