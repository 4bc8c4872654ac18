"""Callers without a key are identified by their address; the socket's own one is authenticated."""

from __future__ import annotations

import asyncio

import pytest

from proxy.api.http.authentication import Authentication, caller_name
from proxy.api.manifest import Open
from proxy.domain.identity import ANYONE, Caller, current_caller
from proxy.domain.record import RequestRecord
from proxy.telemetry.metrics import Metrics
from tests.fixtures.limits import caller


class Gate:
    async def caller(self, headers, peer: str) -> Caller:
        self.peer = peer
        return ANYONE


def test_the_address_of_the_socket_counts_and_not_a_forwarded_one():
    gate = Gate()
    connection = {"headers": [], "client": ("10.0.0.1", 1), "peer": ("10.0.0.9", 1)}
    asyncio.run(Authentication(gate, Metrics()).caller(connection, Open.CALLER, RequestRecord()))
    assert gate.peer == "10.0.0.9"


@pytest.mark.parametrize(
    ("who", "client", "name"),
    [
        (ANYONE, ("10.0.0.1", 1), "10.0.0.1"),
        (ANYONE, ("2001:db8::1", 1), "2001:db8::/64"),
        (ANYONE, ("2001:db8::ffff:1", 1), "2001:db8::/64"),
        (ANYONE, ("testclient", 1), "testclient"),
        (ANYONE, None, ""),
        (caller("acme", "one"), ("10.0.0.1", 1), "acme/one"),
    ],
)
def test_a_caller_is_a_key_or_else_an_address(who, client, name):
    token = current_caller.set(who)
    try:
        assert caller_name({"client": client}) == name
    finally:
        current_caller.reset(token)
