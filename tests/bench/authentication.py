"""What the authentication of a warm request costs, in microseconds: the whole ASGI layer.

usage: python -m tests.bench.authentication

The layer runs around an application that does nothing, with the headers that OpenAI's SDK sends;
the same call without the layer is subtracted. Median of ROUNDS rounds, ways alternating.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from hashlib import sha256
from ipaddress import ip_network
from statistics import median
from typing import Any

from proxy.access.authentication.authenticator import Authenticator
from proxy.access.authentication.credentials import TrustedFront
from proxy.access.authentication.known_keys import KnownKeys
from proxy.access.authentication.signing_keys import SigningKeys
from proxy.access.authentication.tokens import TokenRules, Tokens
from proxy.api.http.authentication import Authentication
from proxy.api.http.route_scopes import RouteScopes
from proxy.domain.identity import ALL_SCOPES, Caller
from proxy.telemetry.metrics import Metrics
from proxy.telemetry.request_log import RequestLog
from tests.doubles.key_source import PEPPER, KeysInMemory
from tests.fixtures import issuer

ROUNDS, CALLS = 5, 20_000
FIXED = "the-one-key-of-the-bench"
SDK = [
    *[(b"host", b"localhost:9000"), (b"accept-encoding", b"gzip, deflate"), (b"connection", b"x")],
    *[(b"accept", b"application/json"), (b"content-type", b"application/json")],
    *[(b"user-agent", b"OpenAI/Python 3"), (b"x-stainless-lang", b"python")],
    *[(b"x-stainless-os", b"Linux"), (b"x-stainless-arch", b"x64"), (b"content-length", b"99")],
    *[(b"x-stainless-runtime", b"CPython"), (b"x-stainless-async", b"false")],
    *[(b"x-stainless-retry-count", b"0"), (b"x-stainless-read-timeout", b"600")],
]
RULES = TokenRules(
    issuer=issuer.ISSUER,
    audiences=(issuer.AUDIENCE,),
    algorithms=("RS256",),
    tenant_claim="tenant",
    scope_claim="scope",
)
App = Callable[[Any, Any, Any], Awaitable[None]]


async def nothing(scope: Any, receive: Any, send: Any) -> None: ...


async def authenticator(source: KeysInMemory) -> Authenticator:
    """With every kind of caller, and the store's state known."""
    up = Metrics().authentication_source_up.labels("store").set
    keys = KnownKeys(source, PEPPER.encode(), trust_s=3600, report=up)
    await keys.watch.check()

    async def fetch() -> dict[str, Any]:
        return {"keys": [issuer.public_jwk("RS256", "one")]}

    signing = SigningKeys(fetch, clock=time.monotonic, report=up)
    await signing.refresh()
    caller = Caller(tenant="default", key_id="API_KEY", scopes=ALL_SCOPES)
    return Authenticator(
        fixed={sha256(FIXED.encode()).digest(): caller},
        keys=keys,
        tokens=Tokens(RULES, signing),
        signing_keys=signing,
        front=TrustedFront((ip_network("10.0.0.0/8"),), "x-client-name"),
        front_scopes=ALL_SCOPES,
    )


async def us_per_call(app: App, headers: list[tuple[bytes, bytes]]) -> float:
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/v1/chat/completions",
        "headers": headers,
        "client": ("10.0.0.1", 1),
    }
    began = time.perf_counter()
    for _ in range(CALLS):
        await app(scope, None, None)
    return (time.perf_counter() - began) / CALLS * 1e6


async def measured() -> dict[str, float]:
    """Microseconds of each kind of credential, above the empty call."""
    source = KeysInMemory()
    key = source.add("k1ey").encode()
    layer = Authentication(
        nothing, authenticator=await authenticator(source), metrics=Metrics(), scopes=RouteScopes()
    )
    ways = {
        "API_KEY": [*SDK, (b"authorization", b"Bearer " + FIXED.encode())],
        "a key of the store": [*SDK, (b"authorization", b"Bearer " + key)],
        "a JWT": [*SDK, (b"authorization", b"Bearer " + issuer.token().encode())],
        "a front's client certificate": [*SDK, (b"x-client-name", b"acme")],
    }
    found: dict[str, list[float]] = {name: [] for name in ways}
    for headers in ways.values():
        await us_per_call(layer, headers)
    for _ in range(ROUNDS):
        empty = await us_per_call(nothing, SDK)
        for name, headers in ways.items():
            found[name].append(await us_per_call(layer, headers) - empty)
    return {name: median(values) for name, values in found.items()}


def main() -> None:
    with RequestLog().recorded("POST", "bench"):
        for name, us in asyncio.run(measured()).items():
            sys.stdout.write(f"{name:30} {us:6.2f} us\n")


if __name__ == "__main__":
    main()
