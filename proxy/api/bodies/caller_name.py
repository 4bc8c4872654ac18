"""The name of a caller, for what is shared fairly: its key, or its address where it has none."""

from __future__ import annotations

from functools import lru_cache
from ipaddress import ip_address, ip_network

from starlette.types import Scope

from proxy.domain.identity import current_caller

SITE_BITS = 64  # of an IPv6 address; a site chooses the other bits freely


def caller_name(scope: Scope) -> str:
    """The tenant and key of `current_caller`; its address if many callers share that identity."""
    who = current_caller.get()
    return _address(scope) if who.is_shared else f"{who.tenant}/{who.key_id}"


def _address(scope: Scope) -> str:
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
