"""Authenticates requests: credentials in headers -> a Caller, or a refusal. Called by the API."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from functools import partial
from hashlib import sha256
from hmac import compare_digest
from ipaddress import ip_network
from typing import TYPE_CHECKING

from proxy import background
from proxy.access.authentication.credentials import Headers, TrustedFront, credential
from proxy.access.authentication.known_keys import KnownKeys, inactive, unaccepted
from proxy.domain.errors import AuthenticationFailed, ErrorCode, LaunchError, ServiceError
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


class Authenticator:
    """Knows callers by all that the settings allow. source: the store of keys, if there is one.

    Raises:
        LaunchError: the settings have a pepper, and there is no store.
    """

    def __init__(self, settings: Settings, source: KeySource | None, metrics: Metrics) -> None:
        up = metrics.authentication_source_up
        self._fixed = _fixed(settings)
        self._keys: KnownKeys | None = None
        self._tokens: Tokens | None = None
        self._front: TrustedFront | None = None
        self._front_scopes = frozenset(map(Scope, settings.client_name_scopes))
        if (pepper := secret_value(settings.key_pepper)) is not None:
            if source is None:
                raise LaunchError("KEY_PEPPER is set, and there is no store of keys")
            self._keys = KnownKeys(source, pepper.encode(), report=up.labels("store").set)
        if (issuer := settings.jwt_issuer) is not None:
            from proxy.access.authentication.signing_keys import SigningKeys, fetch_key_set
            from proxy.access.authentication.tokens import Tokens

            fetch = partial(fetch_key_set, issuer, settings.jwt_jwks_url)
            keys = SigningKeys(fetch, clock=time.monotonic, report=up.labels("issuer").set)
            self._tokens = Tokens(settings, keys)
        if settings.client_name_header is not None:
            networks = tuple(map(ip_network, settings.trusted_fronts))
            self._front = TrustedFront(networks, settings.client_name_header.lower())

    async def caller(self, headers: Headers, peer: str) -> Caller:
        """The caller. A key in the headers takes precedence over what a front says.

        headers: as ASGI has them. peer: the address at the other end of the connection.

        Raises:
            AuthenticationFailed: no credential, more than one, or one that is not accepted.
            RequestError: the caller's tenant is not active.
            ServiceError: the credential cannot be checked at present.
        """
        given = credential(headers)
        try:
            if given is not None:
                return self._of_settings(given) or await self._of_credential(given)
            name = None if self._front is None else self._front.identity(headers, peer)
            if name is not None:
                return await self._of_tenant(
                    Caller(tenant=name, key_id=f"mtls:{name}", scopes=self._front_scopes)
                )
        except KeysUnavailable:
            raise ServiceError(OUTAGE, code=ErrorCode.AUTHENTICATION_UNAVAILABLE) from None
        raise AuthenticationFailed(
            "No API key was sent: send `Authorization: Bearer YOUR_API_KEY`.",
            code=ErrorCode.MISSING_API_KEY,
        )

    async def again(self, caller: Caller) -> Caller:
        """A caller that was accepted before, as it is now. Raises as `caller` does."""
        if caller.is_shared or self._keys is None:
            return caller
        try:
            if ":" not in caller.key_id:
                return await self._keys.of_id(caller.key_id)
            found = await self._keys.of_tenant(caller)  # a token or a front has named it
        except KeysUnavailable:
            raise ServiceError(OUTAGE, code=ErrorCode.AUTHENTICATION_UNAVAILABLE) from None
        if found.tenant_since != caller.tenant_since:  # another one of the same name
            raise inactive(caller.tenant)
        return found

    def concerns(self) -> list[Concern]:
        """Sources that cannot be reached at present."""
        found, keys, tokens = [], self._keys, self._tokens
        if keys is not None and not keys.answers:
            is_only = not self._fixed and tokens is None
            is_fatal = is_only and not keys.is_trusted()
            found.append(Concern(message="keys cannot be read", is_fatal=is_fatal))
        if tokens is not None and not tokens.keys.answers:
            message = "the keys of the tokens' issuer cannot be fetched"
            found.append(Concern(message=message, is_fatal=False))
        return found

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Follows changes of keys, in tasks that end with the body. The first look comes first."""
        first: list[Awaitable[object]] = []
        following: list[KnownKeys | SigningKeys] = []
        if self._keys is not None:
            first.append(self._keys.check())
            following.append(self._keys)
        if self._tokens is not None:
            first.append(self._tokens.keys.refresh())
            following.append(self._tokens.keys)
        await asyncio.gather(*first)
        tasks = [asyncio.create_task(each.run()) for each in following]
        try:
            yield
        finally:
            await background.end(tasks)

    def _of_settings(self, given: bytes) -> Caller | None:
        digest = sha256(given).digest() if self._fixed else b""
        for known, caller in self._fixed.items():
            if compare_digest(digest, known):
                return caller
        return None

    async def _of_credential(self, given: bytes) -> Caller:
        if self._keys is not None and given.startswith(b"sk-"):
            return await self._keys.caller(given)
        if self._tokens is not None and self._tokens.has_form(given):
            return await self._of_tenant(await self._tokens.caller(given))
        raise unaccepted()

    async def _of_tenant(self, caller: Caller) -> Caller:
        return caller if self._keys is None else await self._keys.of_tenant(caller)


def _fixed(settings: Settings) -> dict[bytes, Caller]:
    """Callers by the SHA-256 of a key from the environment."""
    found = {}
    for secret, key_id, scopes in (
        (settings.metrics_key, "METRICS_KEY", frozenset({Scope.METRICS})),
        (settings.api_key, "API_KEY", ALL_SCOPES),
    ):
        if (value := secret_value(secret)) is not None:
            caller = Caller(tenant=SHARED_TENANT, key_id=key_id, scopes=scopes, is_shared=True)
            found[sha256(value.encode()).digest()] = caller
    return found
