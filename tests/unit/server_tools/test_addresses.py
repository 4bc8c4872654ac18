"""Which addresses a tool may be at."""

from __future__ import annotations

import pytest

from proxy.server_tools.addresses import is_public


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "127.9.9.9",
        "0.0.0.0",
        "10.1.2.3",
        "172.16.0.1",
        "192.168.1.1",
        "169.254.169.254",
        "100.64.0.1",
        "100.127.255.254",
        "224.0.0.1",
        "239.1.1.1",
        "240.0.0.1",
        "255.255.255.255",
        "192.0.2.1",
        "198.18.0.1",
        "::",
        "::1",
        "fe80::1",
        "fe80::1%lo",
        "fc00::1",
        "fd12:3456::1",
        "ff02::1",
        "ff0e::1",
        "::ffff:127.0.0.1",
        "::ffff:10.0.0.1",
        "::ffff:169.254.169.254",
        "64:ff9b::7f00:1",
        "64:ff9b::a9fe:a9fe",
        "2002:7f00:1::",
        "2001:db8::1",
    ],
)
def test_what_is_not_anybodys_is_not_public(address):
    assert not is_public(address)


@pytest.mark.parametrize(
    "address",
    ["8.8.8.8", "100.63.255.255", "172.32.0.1", "2606:4700::1111", "::ffff:8.8.8.8"],
)
def test_what_is_anybodys_is_public(address):
    assert is_public(address)
