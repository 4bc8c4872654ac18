"""Whose turn it is where callers take turns: a key's, or an address's."""

from __future__ import annotations

import pytest

from proxy.api.http.authentication import caller_name
from proxy.domain.identity import Caller, current_caller
from tests.fixtures.limits import caller


def name_of(address: str, who: Caller | None = None) -> str:
    if who is None:
        return caller_name({"client": (address, 1)})
    token = current_caller.set(who)
    try:
        return caller_name({"client": (address, 1)})
    finally:
        current_caller.reset(token)


@pytest.mark.parametrize(
    ("address", "name"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("2001:db8::1", "2001:db8::/64"),
        ("2001:db8::ffff:1", "2001:db8::/64"),
        ("testclient", "testclient"),
    ],
)
def test_without_keys_a_caller_is_an_address(address: str, name: str):
    assert name_of(address) == name


def test_a_connection_without_an_address_has_an_empty_name():
    assert caller_name({"client": None}) == ""


def test_a_key_is_one_caller_from_every_address():
    who = caller("acme", "one")
    assert name_of("10.0.0.1", who) == name_of("10.0.0.2", who)
    assert name_of("10.0.0.1", who) != name_of("10.0.0.1", caller("acme", "two"))
