"""credentials: what is read from headers, and from whom."""

from __future__ import annotations

from ipaddress import ip_network

import pytest

from proxy.access.authentication.credentials import MOST_BYTES, TrustedFront, credential
from proxy.domain.errors import AuthenticationFailed, ErrorCode

BEARER = b"authorization"
FRONT = TrustedFront((ip_network("10.0.0.0/8"), ip_network("::1/128")), "x-client-name")


@pytest.mark.parametrize(
    ("headers", "found"),
    [
        ([(b"host", b"x")], None),
        ([(BEARER, b"bearer   key ")], b"key"),
        ([(BEARER, b"Bearer ")], None),
        ([(b"x-api-key", b" key ")], b"key"),
        ([(b"api-key", b"")], None),
        ([(BEARER, b"Bearer key"), (b"x-api-key", b"key"), (b"api-key", b"key")], b"key"),
        ([(BEARER, b"Bearer " + b"k" * MOST_BYTES)], b"k" * MOST_BYTES),
    ],
)
def test_the_key_of_a_request(headers, found):
    assert credential(headers) == found


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("acme", "acme"),
        ("spiffe:acme@example.org", "spiffe:acme@example.org"),
        ("CN=acme", "acme"),
        ("CN=Acme Robots,OU=x,O=Example", "Acme Robots"),
        ("O=Example, CN=acme", "acme"),
        ("", None),
    ],
)
def test_the_name_in_a_certificate(given, name):
    assert FRONT.identity([(b"x-client-name", given.encode())], "10.1.2.3") == name


@pytest.mark.parametrize(
    "given",
    [
        "O=Example",
        "CN=a,CN=b",
        "O=x\\,CN=victim,CN=a",
        "O=x\\,CN=victim",
        'O="x,CN=victim"',
        "/C=DE/O=Example/CN=acme",
        "CN=",
        "CN=a\0b",
        "a/b",
        "x" * 300,
        "CN=caf\xe9",
    ],
)
def test_a_name_that_is_none_or_two_is_refused(given):
    with pytest.raises(AuthenticationFailed, match="no common name"):
        FRONT.identity([(b"x-client-name", given.encode("latin-1"))], "10.1.2.3")


def test_a_name_twice_is_refused_and_from_elsewhere_it_is_nothing():
    headers = [(b"x-client-name", b"a"), (b"x-client-name", b"b")]
    with pytest.raises(AuthenticationFailed) as refused:
        FRONT.identity(headers, "::1")
    assert refused.value.code is ErrorCode.CONFLICTING_CREDENTIALS
    for peer in ("11.0.0.1", "::2", "", "unix", "10.0.0.1.evil.example"):
        assert FRONT.identity(headers, peer) is None
