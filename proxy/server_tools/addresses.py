"""Resolves the host of a tool, and decides whether the proxy may connect to an address."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from functools import partial
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

# (host, port) -> IP addresses, best first; raises OSError if there are none
Resolve = Callable[[str, int], Awaitable[list[str]]]

# IANA's special-purpose registries, and the addresses of clouds' metadata services. Written out,
# because `is_global` differs between Python's releases and counts some of these as global. Anycast
# and relay ranges (192.88.99.0/24, 192.31.196.0/24, …) lead to whoever announces them nearest.
_NOT_PUBLIC_4 = tuple(
    IPv4Network(network)
    for network in (
        "0.0.0.0/8",
        "10.0.0.0/8",
        "100.64.0.0/10",
        "127.0.0.0/8",
        "169.254.0.0/16",
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",
        "192.31.196.0/24",
        "192.52.193.0/24",
        "192.88.99.0/24",
        "192.168.0.0/16",
        "192.175.48.0/24",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/4",
        "240.0.0.0/4",
        "168.63.129.16/32",  # Azure's virtual host, which a virtual machine always reaches
    )
)
# Only 2000::/3 is assigned as global unicast; these networks in it are not public:
_GLOBAL_UNICAST = IPv6Network("2000::/3")
_NOT_PUBLIC_6 = tuple(
    IPv6Network(network)
    for network in (
        "2001::/23",  # protocol assignments: Teredo, benchmarking, ORCHID
        "2001:db8::/32",
        "3fff::/20",  # documentation
        "2002::/16",  # 6to4: leads through a relay to the IPv4 address within
        "2620:4f:8000::/48",
        "2001:4:112::/48",  # AS112
    )
)
# IPv6 addresses whose last 32 bits are an IPv4 address. Operators may choose other prefixes for
# NAT64, which cannot be recognized here.
_WELL_KNOWN_NAT64 = IPv6Network("64:ff9b::/96")
_MAPPED = IPv6Network("::ffff:0:0/96")
_ISATAP = (0x0000_5EFE, 0x0200_5EFE)  # first half of the interface identifier


async def resolved(host: str, port: int, executor: Executor | None = None) -> list[str]:
    """The host's addresses from the system's resolver. Raises OSError.

    executor: whose threads wait for name servers; None for the loop's own.
    """
    loop, ask = asyncio.get_running_loop(), partial(socket.getaddrinfo, type=socket.SOCK_STREAM)
    found = await loop.run_in_executor(executor, ask, host, port)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


def is_public(text: str) -> bool:
    """Whether an IP address belongs to an ordinary host on the internet.

    An IPv4-mapped, NAT64 or ISATAP address is public only if its IPv4 address is. A 6to4 address,
    or one with a zone, is never public.
    """
    address = ip_address(text)
    if isinstance(address, IPv4Address):
        return not any(address in network for network in _NOT_PUBLIC_4)
    if address.scope_id is not None:
        return False
    if address in _WELL_KNOWN_NAT64 or address in _MAPPED:
        return is_public(str(_last_32_bits(address)))
    if address not in _GLOBAL_UNICAST or any(address in network for network in _NOT_PUBLIC_6):
        return False
    return not _is_isatap(address) or is_public(str(_last_32_bits(address)))


def _is_isatap(address: IPv6Address) -> bool:
    return (int(address) >> 32) & 0xFFFF_FFFF in _ISATAP


def _last_32_bits(address: IPv6Address) -> IPv4Address:
    return IPv4Address(int(address) & 0xFFFF_FFFF)
