"""JWTs of an OIDC issuer -> callers. Verified tokens are remembered until they expire."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Any

import jwt
import structlog
from cachetools import TLRUCache

from proxy.access.authentication.signing_keys import SigningKeys
from proxy.domain.errors import AuthenticationFailed, ErrorCode
from proxy.domain.identity import Caller, Scope, is_reserved
from proxy.settings.callers import Identities

MOST_REMEMBERED = 10_000
LEEWAY_S = 30.0  # how far clocks may differ
MOST_BYTES = 8192  # a longer token is refused before it is read
LONGEST_NAME = 200  # of a tenant or subject, in characters
MOST_PRIORITY = 2**31 - 1
_FORM = re.compile(rb"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+")

logger = structlog.get_logger(__name__)


class Tokens:
    """rules: what a token must have. now: seconds since the epoch, as tokens have it.

    A dot in the name of a claim leads into an object, as `realm.roles`. Scopes are a list or words
    in one string; words that are not a Scope are ignored.
    """

    def __init__(
        self, rules: Identities, keys: SigningKeys, *, now: Callable[[], float] = time.time
    ) -> None:
        self.keys = keys
        self._rules = rules
        self._verified: TLRUCache[bytes, tuple[Caller, float]] = TLRUCache(
            MOST_REMEMBERED, lambda _, found, __: found[1], timer=now
        )

    @staticmethod
    def has_form(credential: bytes) -> bool:
        """Whether it looks like a token: three parts between dots."""
        return credential.count(b".") == 2 and _FORM.fullmatch(credential) is not None

    async def caller(self, token: bytes) -> Caller:
        """What a valid token says of its caller.

        Raises:
            AuthenticationFailed: it is too long, expired, or not valid here.
            KeysUnavailable: the issuer's keys are not known at present.
        """
        if len(token) > MOST_BYTES:
            raise AuthenticationFailed(
                f"The token has {len(token):,} bytes: at most {MOST_BYTES:,} are read."
            )
        name = sha256(token).digest()
        found = self._verified.get(name)
        if found is None:
            found = self._verified[name] = await self._verify(token)
        return found[0]

    async def _verify(self, token: bytes) -> tuple[Caller, float]:
        """The caller, and until when the token is valid."""
        rules = self._rules
        algorithm, key_id = self._header(token)
        key = await self.keys.find(key_id, algorithm)
        if key is None:
            raise _refusal("it is not signed with a key of the issuer")
        payload = self._payload(token, key, algorithm)
        scopes = _words(_claim(payload, rules.jwt_scope_claim))
        tenant = _name(payload, rules.jwt_tenant_claim)
        if is_reserved(tenant):
            raise _refusal(f"the tenant {tenant!r} is reserved")
        caller = Caller(
            tenant=tenant,
            key_id=f"jwt:{_name(payload, 'sub')}",
            scopes=frozenset(scope for scope in Scope if scope.value in scopes),
            max_priority=_priority(payload, rules.jwt_priority_claim),
        )
        return caller, _seconds(payload["exp"])

    def _header(self, token: bytes) -> tuple[str, str | None]:
        """The algorithm, which is an allowed one, and the id of the key."""
        try:
            header = jwt.get_unverified_header(token)
        except Exception as error:  # the parser's own, for whatever callers send
            raise _unreadable(error) from None
        algorithm, key_id = header.get("alg"), header.get("kid")
        if algorithm not in self._rules.jwt_algorithms:
            raise _refusal("its algorithm is not allowed here")
        if "crit" in header:
            raise _refusal("its header has critical extensions")
        if not isinstance(key_id, str | None):
            raise _refusal("its key id is not a string")
        return str(algorithm), key_id

    def _payload(self, token: bytes, key: jwt.PyJWK, algorithm: str) -> dict[str, Any]:
        rules = self._rules
        try:
            return jwt.decode(
                token,
                key,
                algorithms=[algorithm],
                audience=rules.jwt_audience,
                issuer=rules.jwt_issuer,
                leeway=LEEWAY_S,
                options={"require": ["exp", "iss", "aud", "sub"]},
            )
        except jwt.ExpiredSignatureError:
            raise AuthenticationFailed(
                "The token has expired: get a new one from its issuer.",
                code=ErrorCode.EXPIRED_API_KEY,
            ) from None
        except (
            jwt.InvalidAudienceError,
            jwt.InvalidIssuerError,
            jwt.ImmatureSignatureError,
            jwt.MissingRequiredClaimError,
        ) as error:
            raise _refusal(str(error)) from None
        except Exception as error:  # the parser's own, for whatever callers send
            raise _unreadable(error) from None


def _claim(payload: Mapping[str, Any], path: str) -> object:
    """`a.b` is the claim of this name, or else `b` in the object `a`."""
    if path in payload:
        return payload[path]
    found: object = payload
    for name in path.split("."):
        found = found.get(name) if isinstance(found, Mapping) else None
    return found


def _name(payload: Mapping[str, Any], claim: str) -> str:
    """A claim that is a name, as it may appear in logs."""
    name = _claim(payload, claim)
    if not isinstance(name, str) or not 0 < len(name) <= LONGEST_NAME or not name.isprintable():
        raise _refusal(f"its claim {claim!r} is not a name")
    return name


def _priority(payload: Mapping[str, Any], claim: str | None) -> int | None:
    found = None if claim is None else _claim(payload, claim)
    if found is None:
        return None
    if not isinstance(found, int) or isinstance(found, bool) or abs(found) > MOST_PRIORITY:
        raise _refusal(f"its claim {claim!r} is not an integer of 32 bits")
    return found


def _seconds(expiry: object) -> float:
    if not isinstance(expiry, int | float) or isinstance(expiry, bool):
        raise _refusal("its claim 'exp' is not a number")
    return float(expiry)


def _words(claim: object) -> set[str]:
    if isinstance(claim, str):
        return set(claim.split())
    return {one for one in claim if isinstance(one, str)} if isinstance(claim, list) else set()


def _refusal(why: str) -> AuthenticationFailed:
    return AuthenticationFailed(f"The token is not accepted: {why}.")


def _unreadable(error: Exception) -> AuthenticationFailed:
    logger.debug("token refused", reason=type(error).__name__)
    return _refusal("it is malformed, or its signature is wrong")
