"""The name of a caller: its address. Limits for each caller count by this name."""

from __future__ import annotations

from functools import lru_cache
from ipaddress import ip_address, ip_network

from starlette.types import Scope

SITE_BITS = 64  # of an IPv6 address; a site chooses the other bits freely


def caller_address(scope: Scope) -> str:
    """The client's IPv4 address or host name, or the /64 of its IPv6 address; "" if unknown.

    uvicorn has replaced the address of a proxy in FORWARDED_ALLOW_IPS by the one that it forwards.
    """
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
