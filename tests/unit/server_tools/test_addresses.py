"""Which addresses a tool may be at."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_network

import pytest

from proxy.server_tools.addresses import is_public

# IANA IPv4 and IPv6 Special-Purpose Address Registries, whether "globally reachable" or not, with
# multicast, and with the blocks that were given up (::/96, fec0::/10).
SPECIAL = [
    "0.0.0.0/8", "0.0.0.0/32", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16",
    "172.16.0.0/12", "192.0.0.0/24", "192.0.0.0/29", "192.0.0.8/32", "192.0.0.9/32",
    "192.0.0.10/32", "192.0.0.170/32", "192.0.0.171/32", "192.0.2.0/24", "192.31.196.0/24",
    "192.52.193.0/24", "192.88.99.0/24", "192.88.99.2/32", "192.168.0.0/16", "192.175.48.0/24",
    "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4",
    "255.255.255.255/32", "::1/128", "::/128", "::/96", "64:ff9b:1::/48", "100::/64",
    "100:0:0:1::/64", "2001::/23", "2001::/32", "2001:1::1/128", "2001:1::2/128", "2001:1::3/128",
    "2001:2::/48", "2001:3::/32", "2001:4:112::/48", "2001:10::/28", "2001:20::/28",
    "2001:30::/28", "2001:db8::/32", "2002::/16", "2620:4f:8000::/48", "3fff::/20", "5f00::/16",
    "fc00::/7", "fe80::/10", "fec0::/10", "ff00::/8",
]  # fmt: skip
METADATA = ["169.254.169.254", "169.254.170.2", "100.100.100.200", "192.0.0.192", "168.63.129.16",
            "fd00:ec2::254", "fd20:ce::254"]  # fmt: skip
PRIVATE = ["127.0.0.1", "10.1.2.3", "172.31.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1",
           "0.0.0.0", "168.63.129.16", "192.0.0.192"]  # fmt: skip
PUBLIC_4 = ["8.8.8.8", "1.1.1.1", "100.63.255.255", "100.128.0.0", "172.15.255.255", "172.32.0.1",
            "168.63.129.15", "168.63.129.17", "192.0.1.1", "223.255.255.255"]  # fmt: skip
PUBLIC_6 = ["2606:4700::1111", "2001:200::1", "2001:4860:4860::8888", "2003::1", "2a00::1",
            "2620:4f:8001::1", "3ffd::1"]  # fmt: skip


@pytest.mark.parametrize("network", SPECIAL)
def test_no_address_of_a_special_network_is_public(network):
    block = ip_network(network)
    middle = block[block.num_addresses // 2]
    for address in (block[0], block[-1], middle):
        assert not is_public(str(address)), address


@pytest.mark.parametrize("address", [*PUBLIC_4, *PUBLIC_6])
def test_an_ordinary_hosts_address_is_public(address):
    assert is_public(address)


def embedded(address: str) -> dict[str, str]:
    """IPv6 forms of an IPv4 address."""
    bits = int(IPv4Address(address))
    high, low = bits >> 16, bits & 0xFFFF
    flipped = bits ^ 0xFFFF_FFFF
    local_nat64 = int(IPv6Address("64:ff9b:1::"))
    return {
        "mapped": f"::ffff:{address}",
        "compatible": f"::{address}",
        "translated (SIIT)": f"::ffff:0:{address}",
        "NAT64": f"64:ff9b::{address}",
        "local NAT64, /48": str(IPv6Address(local_nat64 | high << 64 | low << 40)),
        "local NAT64, /96": f"64:ff9b:1::{address}",
        "6to4": f"2002:{high:x}:{low:x}::1",
        "Teredo's server": f"2001:0:{high:x}:{low:x}::",
        "Teredo's client": f"2001:0:102:304:0:0:{flipped >> 16:x}:{flipped & 0xFFFF:x}",
        "ISATAP": f"2606:4700::5efe:{address}",
        "ISATAP, global": f"2606:4700::200:5efe:{address}",
        "ISATAP, link-local": f"fe80::5efe:{address}",
    }


@pytest.mark.parametrize("address", PRIVATE)
@pytest.mark.parametrize("form", embedded("127.0.0.1"))
def test_no_ipv6_form_makes_an_ipv4_address_public(address, form):
    assert not is_public(embedded(address)[form])


@pytest.mark.parametrize("form", ["mapped", "NAT64", "ISATAP", "ISATAP, global"])
def test_a_form_that_a_network_may_really_use_is_as_public_as_its_address(form):
    assert is_public(embedded("8.8.8.8")[form])


ZONED = ["fe80::1%lo", "2606:4700::1111%eth0", "::1%1"]


@pytest.mark.parametrize("address", [*METADATA, *ZONED])
def test_a_clouds_metadata_and_an_address_with_a_zone_are_not_public(address):
    assert not is_public(address)


@pytest.mark.parametrize("text", ["", "localhost", "127.1", "0x7f.1", "2130706433", "127.0.0.1:80"])
def test_what_is_no_address_is_not_taken_for_one(text):
    with pytest.raises(ValueError):  # noqa: PT011  # ipaddress says which text it was
        is_public(text)
