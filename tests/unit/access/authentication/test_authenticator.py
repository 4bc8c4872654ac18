"""What is read from headers, from whom, and what tenants give to callers."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from ipaddress import ip_network

import orjson
import pytest

from proxy.access.authentication.authenticator import Authenticator
from proxy.access.authentication.credentials import MOST_BYTES, TrustedFront, credential
from proxy.domain.errors import AuthenticationFailed, ErrorCode, RequestError
from proxy.domain.identity import Caller
from proxy.settings import Settings
from proxy.telemetry.metrics import Metrics
from tests.doubles.key_source import BEGAN, PEPPER, KeysInMemory
from tests.fixtures.file_server import FileServer
from tests.fixtures.issuer import AUDIENCE, ISSUER, public_jwk, token

FRONT = "10.0.0.1"


def known(store: KeysInMemory | None, name: bytes, value: str) -> Caller:
    """The caller of a request with this header, from the front."""

    async def main(url: str) -> Caller:
        settings = Settings(
            key_pepper=None if store is None else PEPPER,
            jwt_issuer=ISSUER,
            jwt_audience=AUDIENCE,
            jwt_jwks_url=url,
            jwt_priority_claim="top",
            client_name_header="x-client-name",
            trusted_fronts="10.0.0.0/8",
        )
        callers = Authenticator(settings, store, Metrics())
        async with callers.running():
            return await callers.caller([(name, value.encode())], FRONT)

    key_set = {"keys": [public_jwk("RS256", "one")]}
    with FileServer({"/keys": orjson.dumps(key_set)}) as server:
        return asyncio.run(main(server.url("/keys")))


def bearer(store: KeysInMemory | None, credential: str) -> Caller:
    return known(store, b"authorization", f"Bearer {credential}")


@pytest.mark.parametrize(
    ("own", "tenant", "ceiling"),
    [(None, None, None), (5, None, 5), (None, 3, 3), (5, 3, 3), (-1, 3, -1), (0, 3, 0)],
)
def test_the_lower_of_the_callers_ceiling_and_its_tenants_holds(own, tenant, ceiling):
    store = KeysInMemory()
    store.add_tenant("acme", max_priority=tenant, weight=2.5)
    key = store.add("k1ey")
    store.change("k1ey", max_priority=own)
    claim = {} if own is None else {"top": own}
    for caller in (bearer(store, key), bearer(store, token(**claim))):
        assert (caller.tenant, caller.max_priority, caller.weight) == ("acme", ceiling, 2.5)


def test_a_tenant_that_is_not_active_or_unknown_is_refused_with_every_credential():
    store = KeysInMemory()
    store.add_tenant("acme", is_active=False)
    for name, value in (
        (b"authorization", f"Bearer {store.add('k1ey')}"),
        (b"authorization", f"Bearer {token()}"),
        (b"authorization", f"Bearer {token(tenant='unknown')}"),
        (b"x-client-name", "acme"),
    ):
        with pytest.raises(RequestError) as refused:
            known(store, name, value)
        assert refused.value.code is ErrorCode.TENANT_NOT_ACTIVE


def test_a_caller_is_not_that_of_another_tenant_of_the_same_name():
    """Whether a key of ours, a token or a front names it."""
    store = KeysInMemory()
    given = f"Bearer {store.add('k1ey')}", f"Bearer {token()}"
    callers = [known(store, b"authorization", each) for each in given]
    callers.append(known(store, b"x-client-name", "acme"))

    async def again(caller: Caller) -> Caller:
        return await Authenticator(Settings(key_pepper=PEPPER), store, Metrics()).again(caller)

    assert [asyncio.run(again(each)) for each in callers] == callers
    store.keys.clear()
    store.add_tenant("acme", created_at=BEGAN + timedelta(seconds=1))
    for each in callers:
        with pytest.raises(RequestError if ":" in each.key_id else AuthenticationFailed):
            asyncio.run(again(each))


BEARER = b"authorization"
TRUSTED = TrustedFront((ip_network("10.0.0.0/8"), ip_network("::1/128")), "x-client-name")


@pytest.mark.parametrize(
    ("headers", "found"),
    [
        ([(b"host", b"x")], None),
        ([(BEARER, b"bearer   key ")], b"key"),
        ([(BEARER, b"Bearer ")], None),
        ([(b"x-api-key", b" key ")], b"key"),
        ([(b"api-key", b"")], None),
        ([(BEARER, b"Bearer key"), (b"x-api-key", b"key"), (b"api-key", b"key")], b"key"),
        ([(BEARER, b"Bearer " + b"k" * MOST_BYTES)], b"k" * MOST_BYTES),
    ],
)
def test_the_key_of_a_request(headers, found):
    assert credential(headers) == found


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("acme", "acme"),
        ("spiffe:acme@example.org", "spiffe:acme@example.org"),
        ("CN=acme", "acme"),
        ("CN=Acme Robots,OU=x,O=Example", "Acme Robots"),
        ("O=Example, CN=acme", "acme"),
        ("", None),
    ],
)
def test_the_name_in_a_certificate(given, name):
    assert TRUSTED.identity([(b"x-client-name", given.encode())], "10.1.2.3") == name


@pytest.mark.parametrize(
    "given",
    [
        "O=Example",
        "CN=a,CN=b",
        "O=x\\,CN=victim,CN=a",
        "O=x\\,CN=victim",
        'O="x,CN=victim"',
        "/C=DE/O=Example/CN=acme",
        "CN=",
        "CN=a\0b",
        "a/b",
        "x" * 300,
        "CN=caf\xe9",
    ],
)
def test_a_name_that_is_none_or_two_is_refused(given):
    with pytest.raises(AuthenticationFailed, match="no common name"):
        TRUSTED.identity([(b"x-client-name", given.encode("latin-1"))], "10.1.2.3")


def test_a_name_twice_is_refused_and_from_elsewhere_it_is_nothing():
    headers = [(b"x-client-name", b"a"), (b"x-client-name", b"b")]
    with pytest.raises(AuthenticationFailed) as refused:
        TRUSTED.identity(headers, "::1")
    assert refused.value.code is ErrorCode.CONFLICTING_CREDENTIALS
    for peer in ("11.0.0.1", "::2", "", "unix", "10.0.0.1.evil.example"):
        assert TRUSTED.identity(headers, peer) is None
