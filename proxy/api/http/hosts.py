"""Checks the Host header, as a defence against DNS rebinding.

An attacker's web page can point its own domain at this server's address. To the browser its
requests then have the same origin, but their Host header is the attacker's domain.
"""

from __future__ import annotations

import ipaddress
from functools import lru_cache

from proxy.domain.errors import ErrorCode, RequestError, echoed

# Names with these suffixes are not in the public DNS, so an attacker cannot point one at this
# server: RFC 6761 and 6762, ICANN's `.internal`, and Kubernetes' services.
PRIVATE_SUFFIXES = (".localhost", ".local", ".internal", ".svc", ".home.arpa")
ANY = "*"


class HostPolicy:
    """Allows IP addresses, names that the public DNS cannot have, and the names in `named`.

    Probes, containers and Kubernetes use the first two; a public name must be in the settings.
    """

    def __init__(self, named: tuple[str, ...]) -> None:
        self._named = frozenset(name.lower().rstrip(".") for name in named)
        self._allows_any = ANY in self._named
        self.knows = lru_cache(maxsize=256)(self._knows)

    def check(self, host: bytes | None) -> None:
        """host: a Host header, with or without a port.

        Raises:
            RequestError: it is not a name of this server.
        """
        if host is None or self._allows_any or self.knows(host.decode("latin-1")):
            return
        raise RequestError(
            f"The host {echoed(host.decode('latin-1'))} is not a name of this server: its operator "
            "adds it to ALLOWED_HOSTS.",
            code=ErrorCode.UNKNOWN_HOST,
        )

    def is_own_origin(self, origin: str, host: str) -> bool:
        """Whether a page of `origin` came from this server, under a name that we know as ours.

        With `ANY` a name is not known as ours: an attacker's domain has its own page's origin, too.
        """
        return origin.partition("://")[2].lower() == host.lower() and self.knows(host)

    def _knows(self, host: str) -> bool:
        name = _without_port(host).lower().rstrip(".")
        if name in self._named or "." not in name or name.endswith(PRIVATE_SUFFIXES):
            return True
        try:
            ipaddress.ip_address(name.strip("[]"))
        except ValueError:
            return False
        return True


def _without_port(host: str) -> str:
    """`name:80`, `10.0.0.1:80`, `[::1]:80` -> `name`, `10.0.0.1`, `[::1]`."""
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdigit() and (":" not in name or name.endswith("]")) else host
