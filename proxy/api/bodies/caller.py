"""Names the caller of a connection; limits for each caller count by this name."""

from __future__ import annotations

from functools import lru_cache
from ipaddress import ip_address, ip_network

from starlette.types import Scope

SITE_BITS = 64  # of an IPv6 address: the rest is for one site to choose


def caller_of(scope: Scope) -> str:
    """The client's address; behind a proxy that FORWARDED_ALLOW_IPS trusts, the one it names."""
    client = scope.get("client")
    return "" if client is None else _named(client[0])


@lru_cache(maxsize=4096)
def _named(host: str) -> str:
    try:
        address = ip_address(host)
    except ValueError:
        return host
    if address.version == 4:
        return host
    return str(ip_network((address, SITE_BITS), strict=False))
