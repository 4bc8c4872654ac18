"""Who sends a request: credentials in its headers -> Caller, or a refusal. Called by the API.

`app` makes the one that the settings ask for.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from hmac import compare_digest
from ipaddress import ip_network
from typing import TYPE_CHECKING

from proxy import background
from proxy.access.authentication.credentials import Headers, TrustedFront, credential
from proxy.access.authentication.known_keys import KnownKeys, of_tenant, unaccepted
from proxy.domain.errors import (
    AuthenticationFailed,
    AuthenticationUnavailable,
    ErrorCode,
    LaunchError,
)
from proxy.domain.health import Concern
from proxy.domain.identity import ALL_SCOPES, SHARED_TENANT, Caller, Scope
from proxy.domain.key_records import KeySource, KeysUnavailable
from proxy.settings import Settings
from proxy.settings.group import secret_value
from proxy.telemetry.metrics import Metrics

if TYPE_CHECKING:  # they need PyJWT and cryptography, which take a tenth of a second to import
    from proxy.access.authentication.signing_keys import SigningKeys
    from proxy.access.authentication.tokens import Tokens

OUTAGE = "API keys and tokens cannot be checked at present: try again later."


@dataclass(frozen=True, slots=True, kw_only=True)
class Authenticator:
    """By what a caller can be known; None and empty are switched off.

    fixed: callers by the SHA-256 of a key from the environment. front_scopes: of callers that a
    front has identified.
    """

    fixed: Mapping[bytes, Caller]
    keys: KnownKeys | None = None
    tokens: Tokens | None = None
    signing_keys: SigningKeys | None = None
    front: TrustedFront | None = None
    front_scopes: frozenset[Scope] = frozenset()

    async def caller(self, headers: Headers, peer: str) -> Caller:
        """The caller. A key in the headers takes precedence over what a front says.

        headers: as ASGI has them. peer: the address at the other end of the connection.

        Raises:
            AuthenticationFailed: no credential, more than one, or one that is not accepted.
            Forbidden: the caller's tenant is not active.
            AuthenticationUnavailable: the credential cannot be checked at present.
        """
        given = credential(headers)
        try:
            if given is not None:
                return await self._of_credential(given)
            if (front := self.front) is not None:
                name = front.identity(headers, peer)
                if name is not None:
                    scopes = self.front_scopes
                    known = Caller(tenant=name, key_id=f"mtls:{name}", scopes=scopes)
                    return await self._of_tenant(known)
        except KeysUnavailable:
            raise AuthenticationUnavailable(OUTAGE) from None
        raise AuthenticationFailed(
            "No API key was sent: send `Authorization: Bearer YOUR_API_KEY`.",
            code=ErrorCode.MISSING_API_KEY,
        )

    def concerns(self) -> list[Concern]:
        """Sources that cannot be reached at present."""
        found, keys, signing_keys = [], self.keys, self.signing_keys
        if keys is not None and not keys.watch.answers:
            is_only = not self.fixed and signing_keys is None
            is_fatal = is_only and not keys.watch.is_trusted()
            found.append(Concern(message="keys cannot be read", is_fatal=is_fatal))
        if signing_keys is not None and not signing_keys.answers:
            message = "the keys of the tokens' issuer cannot be fetched"
            found.append(Concern(message=message, is_fatal=False))
        return found

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Follows changes of keys, in tasks that end with the body. The first look comes first."""
        watch = None if self.keys is None else self.keys.watch
        first: list[Awaitable[object]] = []
        if watch is not None:
            first.append(watch.check())
        if self.signing_keys is not None:
            first.append(self.signing_keys.refresh())
        await asyncio.gather(*first)
        following = [each for each in (watch, self.signing_keys) if each is not None]
        tasks = [asyncio.create_task(each.run()) for each in following]
        try:
            yield
        finally:
            await background.end(tasks)

    async def _of_credential(self, given: bytes) -> Caller:
        if self.fixed:
            digest = sha256(given).digest()
            for expected, caller in self.fixed.items():
                if compare_digest(digest, expected):
                    return caller
        if self.keys is not None and given.startswith(b"sk-"):
            return await self.keys.caller(given)
        if (tokens := self.tokens) is not None and tokens.has_form(given):
            claims = await tokens.claims(given)
            known = Caller(
                tenant=claims.tenant,
                key_id=f"jwt:{claims.subject}",
                scopes=claims.scopes,
                max_priority=claims.max_priority,
            )
            return await self._of_tenant(known)
        raise unaccepted()

    async def _of_tenant(self, caller: Caller) -> Caller:
        """The caller, who has no key of ours, with what a store has of the tenant."""
        if self.keys is None:
            return caller
        return of_tenant(caller, await self.keys.tenant(caller.tenant))


def authenticator(
    settings: Settings, source: KeySource | None, metrics: Metrics
) -> Authenticator | None:
    """None if every caller may do everything. source: the store of keys, if there is one.

    Raises:
        LaunchError: the settings have a pepper, and there is no store.
    """
    if not settings.is_authenticated:
        return None
    signing_keys, tokens, front = None, None, None
    if settings.jwt_issuer is not None:
        signing_keys, tokens = _tokens(settings, settings.jwt_issuer, metrics)
    if settings.client_name_header is not None:
        networks = tuple(map(ip_network, settings.trusted_fronts))
        front = TrustedFront(networks, settings.client_name_header.lower())
    return Authenticator(
        fixed=_fixed(settings),
        keys=_keys(settings, source, metrics),
        tokens=tokens,
        signing_keys=signing_keys,
        front=front,
        front_scopes=frozenset(map(Scope, settings.client_name_scopes)),
    )


def _fixed(settings: Settings) -> dict[bytes, Caller]:
    found = {}
    for secret, key_id, scopes in (
        (settings.metrics_key, "METRICS_KEY", frozenset({Scope.METRICS})),
        (settings.api_key, "API_KEY", ALL_SCOPES),
    ):
        if (value := secret_value(secret)) is not None:
            caller = Caller(tenant=SHARED_TENANT, key_id=key_id, scopes=scopes, is_shared=True)
            found[sha256(value.encode()).digest()] = caller
    return found


def _keys(settings: Settings, source: KeySource | None, metrics: Metrics) -> KnownKeys | None:
    pepper = secret_value(settings.key_pepper)
    if pepper is None:
        return None
    if source is None:
        raise LaunchError("KEY_PEPPER is set, and there is no store of keys")
    up = metrics.authentication_source_up.labels("store")
    return KnownKeys(source, pepper.encode(), report=up.set)


def _tokens(settings: Settings, issuer: str, metrics: Metrics) -> tuple[SigningKeys, Tokens]:
    from proxy.access.authentication.signing_keys import SigningKeys, fetch_key_set
    from proxy.access.authentication.tokens import TokenRules, Tokens

    fetch = partial(fetch_key_set, issuer, settings.jwt_jwks_url)
    up = metrics.authentication_source_up.labels("issuer")
    keys = SigningKeys(fetch, clock=time.monotonic, report=up.set)
    rules = TokenRules(
        issuer=issuer,
        audiences=settings.jwt_audience,
        algorithms=settings.jwt_algorithms,
        tenant_claim=settings.jwt_tenant_claim,
        scope_claim=settings.jwt_scope_claim,
        priority_claim=settings.jwt_priority_claim,
    )
    return keys, Tokens(rules, keys)
