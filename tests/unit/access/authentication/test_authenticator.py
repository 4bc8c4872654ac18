"""Authenticator: weight and ceiling of callers with a key, a token or a certificate."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from ipaddress import ip_network

import pytest

from proxy.access.authentication.authenticator import Authenticator
from proxy.access.authentication.credentials import TrustedFront
from proxy.access.authentication.known_keys import KnownKeys
from proxy.access.authentication.signing_keys import SigningKeys
from proxy.access.authentication.tokens import Tokens
from proxy.domain.identity import ALL_SCOPES, Caller
from tests.doubles.key_source import PEPPER, KeysInMemory
from tests.fixtures.issuer import public_jwk, token
from tests.unit.access.authentication.test_tokens import RULES

FRONT = "10.0.0.1"
RULES_WITH_CLAIM = replace(RULES, priority_claim="top")


async def key_set() -> dict:
    return {"keys": [public_jwk("RS256", "one")]}


async def authenticator(store: KeysInMemory | None) -> Authenticator:
    signing_keys = SigningKeys(key_set, clock=time.monotonic, report=lambda up: None)
    await signing_keys.refresh()
    keys = None
    if store is not None:
        keys = KnownKeys(store, PEPPER.encode(), trust_s=60, report=lambda up: None)
        await keys.watch.check()
    return Authenticator(
        fixed={},
        keys=keys,
        tokens=Tokens(RULES_WITH_CLAIM, signing_keys),
        signing_keys=signing_keys,
        front=TrustedFront((ip_network("10.0.0.0/8"),), "x-client-name"),
        front_scopes=ALL_SCOPES,
    )


def known(store: KeysInMemory | None, name: bytes, value: str) -> Caller:
    """The caller of a request with this header, from the front."""

    async def main() -> Caller:
        return await (await authenticator(store)).caller([(name, value.encode())], FRONT)

    return asyncio.run(main())


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


def test_a_certificate_has_its_tenants_weight_and_ceiling():
    store = KeysInMemory()
    store.add_tenant("acme", max_priority=-2, weight=0.5)
    caller = known(store, b"x-client-name", "acme")
    assert (caller.key_id, caller.max_priority, caller.weight) == ("mtls:acme", -2, 0.5)


def test_without_a_store_a_token_has_its_claims_ceiling_and_the_usual_weight():
    assert bearer(None, token(top=4)).max_priority == 4
    caller = bearer(None, token())
    assert (caller.max_priority, caller.weight) == (None, 1.0)
