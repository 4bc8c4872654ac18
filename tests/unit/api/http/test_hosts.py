from __future__ import annotations

import pytest

from proxy.api.http.hosts import HostPolicy


@pytest.mark.parametrize(
    "host",
    [
        *("localhost", "localhost:9000", "LOCALHOST.", "127.0.0.1:9000", "[::1]", "[::1]:9000"),
        *("10.1.2.3", "203.0.113.9:80", "proxy", "proxy:9000", "box.local", "x.internal"),
        *("proxy.space.svc", "proxy.space.svc.cluster.local:9000", ""),
    ],
)
def test_addresses_and_names_without_public_dns_need_no_setting(host):
    assert HostPolicy(()).allows(host)


@pytest.mark.parametrize(
    "host",
    [
        *("evil.example", "evil.example:9000", "127.0.0.1.evil.example", "localhost.evil.example"),
        *("127.0.0.1.nip.io:9000", "evillocal.example", "10.1.2.3.4", "evil.example#localhost"),
        *("evil.example:", "local.evil", "[evil.example]"),
    ],
)
def test_public_names_do(host):
    assert not HostPolicy(("api.example.com",)).allows(host)


def test_a_named_one_is_itself_and_not_what_is_below_it():
    hosts = HostPolicy(("Api.Example.com",))
    assert hosts.allows("api.example.com:443")
    assert not hosts.allows("x.api.example.com")
