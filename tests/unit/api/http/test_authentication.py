"""authentication: whose address counts, denied administrators, and refused handshakes."""

from __future__ import annotations

import asyncio

import pytest

from proxy.api.http.authentication import Authentication, caller_name
from proxy.api.http.route_scopes import RouteScopes
from proxy.domain.errors import AuthenticationFailed, ErrorCode, Forbidden
from proxy.domain.identity import ANYONE, Caller, Scope, current_caller
from proxy.telemetry.metrics import Metrics
from proxy.telemetry.request_log import REQUEST_LOG, RequestLog
from tests.fixtures.limits import caller

CHATTER = Caller(tenant="acme", key_id="k1ey", scopes=frozenset({Scope.CHAT}))


class Gate:
    """Lets CHATTER in with any header; keeps the addresses that it saw."""

    def __init__(self) -> None:
        self.peers: list[str] = []

    async def caller(self, headers, peer: str) -> Caller:
        self.peers.append(peer)
        if not headers:
            raise AuthenticationFailed("no")
        return CHATTER


class Inner:
    def __init__(self) -> None:
        self.callers: list[Caller] = []

    async def __call__(self, scope, receive, send) -> None:
        self.callers.append(current_caller.get())


def connection(path: str, *headers: tuple[bytes, bytes], kind: str = "http", **more) -> dict:
    scope = {"type": kind, "path": path, "headers": list(headers), "client": ("10.0.0.1", 1)}
    scope[REQUEST_LOG] = RequestLog()
    return {**scope, **({"method": "GET"} if kind == "http" else {}), **more}


def layer(inner: Inner, gate: Gate, **more) -> Authentication:
    return Authentication(
        inner, authenticator=gate, metrics=Metrics(), scopes=RouteScopes(), **more
    )


def test_the_caller_is_known_inside_and_forgotten_after():
    inner, gate = Inner(), Gate()

    async def main() -> None:
        scope = connection("/v1/chat/completions", (b"x-api-key", b"k"))
        await layer(inner, gate)(scope, None, None)
        assert current_caller.get() is ANYONE

    asyncio.run(main())
    assert inner.callers == [CHATTER]


def test_the_address_of_the_socket_counts_and_not_a_forwarded_one():
    inner, gate = Inner(), Gate()
    scope = connection("/v1/chat/completions", (b"x-api-key", b"k"), peer=("10.0.0.9", 1))
    asyncio.run(layer(inner, gate)(scope, None, None))
    assert gate.peers == ["10.0.0.9"]


def test_denied_calls_of_administrators_are_reported_with_their_caller():
    denied = []
    app = layer(Inner(), Gate(), denied=lambda *call: denied.append(call))
    with pytest.raises(Forbidden):
        asyncio.run(app(connection("/admin/v1/keys", (b"x-api-key", b"k")), None, None))
    with pytest.raises(AuthenticationFailed):
        asyncio.run(app(connection("/admin/v1/keys"), None, None))
    with pytest.raises(AuthenticationFailed):
        asyncio.run(app(connection("/v1/models"), None, None))
    assert denied == [
        ("GET", "/admin/v1/keys", CHATTER, ErrorCode.INSUFFICIENT_SCOPE),
        ("GET", "/admin/v1/keys", None, ErrorCode.INVALID_API_KEY),
    ]


def test_a_handshake_is_closed_where_the_server_cannot_send_a_status():
    sent = []

    async def send(message) -> None:
        sent.append(message)

    inner = Inner()
    scope = connection("/v1/chat/completions/ws", kind="websocket")
    asyncio.run(layer(inner, Gate())(scope, None, send))
    assert sent == [{"type": "websocket.close", "code": 1008}]
    assert inner.callers == []


@pytest.mark.parametrize(
    ("path", "need"),
    [
        ("/v1/models/org/name", Scope.MODELS),
        ("/v1/models", Scope.MODELS),
        ("/admin/v1/keys/k1/rotate", Scope.ADMIN),
    ],
)
def test_the_need_of_a_path_with_a_name_in_it(path, need):
    assert RouteScopes().of(path) is need


def name_of(address: str, who: Caller | None = None) -> str:
    if who is None:
        return caller_name({"client": (address, 1)})
    token = current_caller.set(who)
    try:
        return caller_name({"client": (address, 1)})
    finally:
        current_caller.reset(token)


@pytest.mark.parametrize(
    ("address", "name"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("2001:db8::1", "2001:db8::/64"),
        ("2001:db8::ffff:1", "2001:db8::/64"),
        ("testclient", "testclient"),
    ],
)
def test_without_keys_a_caller_is_an_address(address: str, name: str):
    assert name_of(address) == name


def test_a_connection_without_an_address_has_an_empty_name():
    assert caller_name({"client": None}) == ""


def test_a_key_is_one_caller_from_every_address():
    who = caller("acme", "one")
    assert name_of("10.0.0.1", who) == name_of("10.0.0.2", who)
    assert name_of("10.0.0.1", who) != name_of("10.0.0.1", caller("acme", "two"))
