"""The identity of a client certificate, as a front that terminates TLS reports it in a header."""

from __future__ import annotations

import re
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Network, ip_address

from proxy.access.authentication.credentials import Headers
from proxy.domain.errors import AuthenticationFailed, ErrorCode
from proxy.domain.identity import is_reserved

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
