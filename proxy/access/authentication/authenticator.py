"""Who sends a request: credentials in its headers -> Caller, or a refusal. Called by the API."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from hashlib import sha256
from hmac import compare_digest
from typing import TYPE_CHECKING

from proxy import background
from proxy.access.authentication.credentials import Headers, credential
from proxy.access.authentication.known_keys import KnownKeys, unaccepted
from proxy.access.authentication.trusted_front import TrustedFront
from proxy.domain.errors import (
    AuthenticationFailed,
    AuthenticationUnavailable,
    ErrorCode,
)
from proxy.domain.health import Concern
from proxy.domain.identity import Caller, Scope, lowest_ceiling
from proxy.domain.key_records import KeysUnavailable

if TYPE_CHECKING:  # they need PyJWT and cryptography, which take a tenth of a second to import
    from proxy.access.authentication.signing_keys import SigningKeys
    from proxy.access.authentication.tokens import Tokens

OUTAGE = "API keys and tokens cannot be checked at present: try again later."


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
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


class Authenticator:
    def __init__(self, sources: Sources) -> None:
        self._sources = sources

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
            if (front := self._sources.front) is not None:
                name = front.identity(headers, peer)
                if name is not None:
                    scopes = self._sources.front_scopes
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
        found, keys, signing_keys = [], self._sources.keys, self._sources.signing_keys
        if keys is not None and not keys.watch.answers:
            is_only = not self._sources.fixed and signing_keys is None
            is_fatal = is_only and not keys.watch.is_trusted()
            found.append(Concern(message="keys cannot be read", is_fatal=is_fatal))
        if signing_keys is not None and not signing_keys.answers:
            message = "the keys of the tokens' issuer cannot be fetched"
            found.append(Concern(message=message, is_fatal=False))
        return found

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Follows changes of keys, in tasks that end with the body. The first look comes first."""
        keys, signing_keys = self._sources.keys, self._sources.signing_keys
        first, following = [], []
        if keys is not None:
            first.append(keys.watch.check())
            following.append(keys.watch.run)
        if signing_keys is not None:
            first.append(_done(signing_keys))
            following.append(signing_keys.run)
        await asyncio.gather(*first)
        tasks = [asyncio.create_task(follow()) for follow in following]
        try:
            yield
        finally:
            await background.end(tasks)

    async def _of_credential(self, given: bytes) -> Caller:
        if self._sources.fixed:
            digest = sha256(given).digest()
            for expected, caller in self._sources.fixed.items():
                if compare_digest(digest, expected):
                    return caller
        if self._sources.keys is not None and given.startswith(b"sk-"):
            return await self._sources.keys.caller(given)
        if (tokens := self._sources.tokens) is not None and tokens.has_form(given):
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
        if self._sources.keys is None:
            return caller
        record = await self._sources.keys.tenant(caller.tenant)
        return replace(
            caller,
            tenant_limits=record.limits,
            of_models=record.of_models,
            weight=record.weight,
            records=record.records,
            max_priority=lowest_ceiling(caller.max_priority, record.max_priority),
        )


async def _done(signing_keys: SigningKeys) -> None:
    await signing_keys.refresh()
