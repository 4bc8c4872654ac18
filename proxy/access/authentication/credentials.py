"""What the headers of a request say of its caller. Called by the authenticator.

A key or token; or the identity of a client certificate, as a front that terminates TLS reports it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Network, ip_address

from proxy.domain.errors import AuthenticationFailed, ErrorCode
from proxy.domain.identity import is_reserved

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
        given = value.strip()
        if name == AUTHORIZATION:
            scheme, _, given = given.partition(b" ")
            if scheme.lower() != b"bearer":
                raise AuthenticationFailed(
                    "The header Authorization must be `Bearer` and an API key, and has another "
                    "scheme."
                )
            given = given.strip()
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


Network = IPv4Network | IPv6Network
# A plain name, or the common name of a distinguished name (RFC 2253). Escapes are not read: a part
# with an escaped comma could pose as another one.
_PLAIN = re.compile(r"[A-Za-z0-9._@:-]{1,200}")
_COMMON_NAME = re.compile(r"(?:^|[,+])\s*CN\s*=\s*([A-Za-z0-9._@: -]{1,200}?)\s*(?=$|[,+])")
_ESCAPES = frozenset('\\"/')


class TrustedFront:
    """networks: addresses of the fronts. header: its name in lower case."""

    def __init__(self, networks: tuple[Network, ...], header: str) -> None:
        self._networks = networks
        self._header = header.encode()
        self._trusts = lru_cache(maxsize=1024)(self._is_front)

    def identity(self, headers: Headers, peer: str) -> str | None:
        """The name in the certificate; None if the request is not from a front, or has none.

        peer: the address at the other end of the connection, not a forwarded one.

        Raises:
            AuthenticationFailed: the header was sent twice, or has no name.
        """
        if not self._trusts(peer):
            return None
        values = [value for name, value in headers if name == self._header]
        if len(values) > 1:
            raise AuthenticationFailed(
                f"The header {self._header.decode()} was sent twice.",
                code=ErrorCode.CONFLICTING_CREDENTIALS,
            )
        given = values[0].decode("latin-1").strip() if values else ""
        name = _name(given) if given else None
        if name is not None and is_reserved(name):
            raise AuthenticationFailed(f"The name {name!r} of the client certificate is reserved.")
        return name

    def _is_front(self, peer: str) -> bool:
        try:
            address = ip_address(peer)
        except ValueError:
            return False
        return any(address in network for network in self._networks)


def _name(given: str) -> str:
    if _PLAIN.fullmatch(given):
        return given
    names = [] if _ESCAPES.intersection(given) else _COMMON_NAME.findall(given)
    if len(names) != 1:
        raise AuthenticationFailed("The client certificate has no common name that can be used.")
    return str(names[0])
