"""Where a tool's host is, and whether the proxy may go there."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address

# (host, port) -> IP addresses, best first; raises OSError where there are none
Resolve = Callable[[str, int], Awaitable[list[str]]]

_NAT64 = IPv6Network("64:ff9b::/96")


async def resolved(host: str, port: int) -> list[str]:
    """As the system resolves it. Raises OSError."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


def is_public(text: str) -> bool:
    """Whether an IP address is anybody's on the internet: not private, loopback, link-local,
    multicast, carrier-grade NAT, reserved, nor an IPv6 form of such an IPv4 address.
    """
    address = _unwrapped(ip_address(text))
    return address.is_global and not address.is_multicast


def _unwrapped(address: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    """The IPv4 address that an IPv6 one leads to, where it does."""
    if isinstance(address, IPv4Address):
        return address
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFF_FFFF)
    teredo = address.teredo
    return address.ipv4_mapped or address.sixtofour or (teredo[1] if teredo else address)
