"""Hostile keys, tokens and headers: none lets anybody in, and none is an error of ours."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import orjson
import pytest

from tests.doubles.engine import ScriptedEngine
from tests.doubles.key_source import PEPPER, KeysInMemory
from tests.fixtures import issuer
from tests.fixtures.file_server import FileServer
from tests.fixtures.hostile_credentials import (
    Headers,
    attacks,
    authorization,
    signed_by_issuer,
)

SOCKET = "/v1/chat/completions/ws"


@pytest.fixture
def keys() -> KeysInMemory:
    return KeysInMemory()


@pytest.fixture
def client(serve, keys, tmp_path):
    """With every source of callers, and the keys `k1ey`, `revoked` and `expired`."""
    now = datetime.now(timezone.utc)
    keys.add("k1ey")
    keys.add("revoked")
    keys.change("revoked", revoked_at=now)
    keys.add("expired", expires_at=now - timedelta(seconds=1))
    jwks = orjson.dumps({"keys": [issuer.public_jwk("RS256", "one")]})
    with FileServer({"/keys": jwks}) as server:
        yield serve(
            ScriptedEngine(),
            keys=keys,
            key_pepper=PEPPER,
            api_key="the-one-key-of-the-tests",
            jwt_issuer=issuer.ISSUER,
            jwt_audience=(issuer.AUDIENCE,),
            jwt_jwks_url=server.url("/keys"),
            client_name_header="X-Client-Name",
            trusted_fronts=("10.0.0.0/8",),
        )


def status_of(client, headers: Headers, path: str = "/v1/models") -> int:
    """As the application answers to these very bytes, which a client library would not send."""
    statuses = []

    async def receive() -> dict:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: dict) -> None:
        statuses.append(message.get("status"))

    scope = {
        "type": "http",
        "method": "GET",
        "path": path,
        "headers": [(b"host", b"localhost"), *headers],
        "client": ("192.0.2.1", 1),
        "query_string": b"",
    }
    client.portal.call(client.app, scope, receive, send)
    return statuses[0]


def socket_status_of(client, headers: Headers) -> int:
    sent = []

    async def receive() -> dict:
        return {"type": "websocket.connect"}

    async def send(message: dict) -> None:
        sent.append(message)

    scope = {
        "type": "websocket",
        "path": SOCKET,
        "headers": [(b"host", b"localhost"), *headers],
        "client": ("192.0.2.1", 1),
        "query_string": b"",
        "extensions": {"websocket.http.response": {}},
    }
    client.portal.call(client.app, scope, receive, send)
    assert sent[0]["type"] == "websocket.http.response.start"
    return sent[0]["status"]


def test_none_of_over_a_hundred_attacks_gets_in(client, keys):
    good, revoked, expired = (f"sk-{name}-{'x' * 43}" for name in ("k1ey", "revoked", "expired"))
    assert status_of(client, authorization(good)) == 200
    for valid in (issuer.token(), signed_by_issuer(issuer.claims())):
        assert status_of(client, authorization(valid)) == 200
    tried = list(attacks(good, revoked, expired))
    statuses = {name: status_of(client, headers) for name, headers in tried}
    assert {name: status for name, status in statuses.items() if status != 401} == {}
    assert len(statuses) == len(tried) > 100


def test_none_of_them_gets_a_socket(client):
    good, revoked, expired = (f"sk-{name}-{'x' * 43}" for name in ("k1ey", "revoked", "expired"))
    statuses = {
        name: socket_status_of(client, headers) for name, headers in attacks(good, revoked, expired)
    }
    assert set(statuses.values()) == {401}


@pytest.mark.parametrize("path", ["/v1/models/../../metrics", "/admin/../v1/models", "//v1/models"])
def test_no_spelling_of_a_path_avoids_the_key(client, path):
    assert status_of(client, [], path) == 401
