"""Authenticator: what tenants give to callers with a key, a token or a certificate."""

from __future__ import annotations

import asyncio

import orjson
import pytest

from proxy.access.authentication.authenticator import Authenticator
from proxy.domain.errors import ErrorCode, Forbidden
from proxy.domain.identity import Caller
from proxy.settings import Settings
from proxy.telemetry.metrics import Metrics
from tests.doubles.key_source import PEPPER, KeysInMemory
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
        with pytest.raises(Forbidden) as refused:
            known(store, name, value)
        assert refused.value.code is ErrorCode.TENANT_NOT_ACTIVE
