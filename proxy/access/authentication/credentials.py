"""Finds the credential in the headers of a request. Called by the authenticator."""

from __future__ import annotations

from collections.abc import Iterable

from proxy.domain.errors import AuthenticationFailed, ErrorCode

MOST_BYTES = 16_384  # of a credential; tokens have a lower limit of their own
AUTHORIZATION = b"authorization"
# x-api-key is Anthropic's header, api-key Azure's; their value is the key alone.
CARRIERS = frozenset({AUTHORIZATION, b"x-api-key", b"api-key"})

Headers = Iterable[tuple[bytes, bytes]]


def credential(headers: Headers) -> bytes | None:
    """The key or token of a request; None without one. The same one may be in several headers.

    headers: as ASGI has them, with names in lower case.

    Raises:
        AuthenticationFailed: two different ones, a header twice, another scheme, or too long.
    """
    found: bytes | None = None
    seen: list[bytes] = []
    for name, value in headers:
        if name not in CARRIERS:
            continue
        given = _of_bearer(value) if name == AUTHORIZATION else value.strip()
        if name in seen or (found is not None and found != given):
            raise AuthenticationFailed(
                "The request has more than one API key: send one, in one of the headers "
                "Authorization, x-api-key and api-key.",
                code=ErrorCode.CONFLICTING_CREDENTIALS,
            )
        seen.append(name)
        found = given
    if found is not None and len(found) > MOST_BYTES:
        raise AuthenticationFailed(f"The API key is longer than {MOST_BYTES:,} bytes.")
    return found or None


def _of_bearer(value: bytes) -> bytes:
    scheme, _, given = value.strip().partition(b" ")
    if scheme.lower() != b"bearer":
        raise AuthenticationFailed(
            "The header Authorization must be `Bearer` and an API key, and has another scheme."
        )
    return given.strip()
