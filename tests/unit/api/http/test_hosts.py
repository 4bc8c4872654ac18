from __future__ import annotations

import pytest

from proxy.api.http.hosts import HostPolicy
from proxy.domain.errors import RequestError


@pytest.mark.parametrize(
    "host",
    [
        *("localhost", "localhost:9000", "LOCALHOST.", "127.0.0.1:9000", "[::1]", "[::1]:9000"),
        *("10.1.2.3", "203.0.113.9:80", "proxy", "proxy:9000", "box.local", "x.internal"),
        *("proxy.space.svc", "proxy.space.svc.cluster.local:9000", ""),
    ],
)
def test_addresses_and_names_without_public_dns_need_no_setting(host):
    HostPolicy(()).check(host.encode())


@pytest.mark.parametrize(
    "host",
    [
        *("evil.example", "evil.example:9000", "127.0.0.1.evil.example", "localhost.evil.example"),
        *("127.0.0.1.nip.io:9000", "evillocal.example", "10.1.2.3.4", "evil.example#localhost"),
        *("evil.example:", "local.evil", "[evil.example]"),
    ],
)
def test_public_names_do(host):
    with pytest.raises(RequestError):
        HostPolicy(("api.example.com",)).check(host.encode())


def test_a_named_one_is_itself_and_not_what_is_below_it():
    hosts = HostPolicy(("Api.Example.com",))
    hosts.check(b"api.example.com:443")
    with pytest.raises(RequestError):
        hosts.check(b"x.api.example.com")
