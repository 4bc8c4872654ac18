"""TLS: h2 by ALPN, and whom to trust."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import pytest
import trustme
from grpc import StatusCode

from tests.contract.transport.calling import Outcome, outcome
from tests.doubles.http2_peer import Peer, PeerConnection, response

pytestmark = pytest.mark.anyio


async def good(peer: PeerConnection) -> None:
    await peer.shake_hands()
    while True:
        peer.send(peer.answer((await peer.request()).stream, response("a", size=100_000)))


async def waiting(_: PeerConnection) -> None:
    await asyncio.sleep(10)


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def ca_file(authority, tmp_path) -> Path:
    path = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(path)
    return path


def context(authority: trustme.CA, host: str = "localhost", *protocols: str) -> ssl.SSLContext:
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(host).configure_cert(made)
    made.set_alpn_protocols(protocols or ["h2"])
    return made


async def test_calls_over_tls(connect, authority, ca_file):
    tls = context(authority)
    async with Peer(good, tls=tls) as peer, connect(peer.port, ca_file=ca_file) as streams:
        for _ in range(3):
            assert await outcome(streams) == Outcome(["a"])


async def test_a_peer_that_does_not_choose_h2_is_refused(connect, authority, ca_file):
    tls = context(authority, "localhost", "http/1.1")
    async with Peer(waiting, tls=tls) as peer, connect(peer.port, ca_file=ca_file) as streams:
        ended = await outcome(streams, timeout_s=2)
        assert ended.code is StatusCode.UNAVAILABLE
        assert "ALPN" in ended.details


@pytest.mark.parametrize("wrong", ["host", "authority"])
async def test_a_certificate_that_is_not_trusted(connect, authority, ca_file, wrong):
    other = trustme.CA() if wrong == "authority" else authority
    host = "elsewhere" if wrong == "host" else "localhost"
    tls = context(other, host)
    async with Peer(waiting, tls=tls) as peer, connect(peer.port, ca_file=ca_file) as streams:
        ended = await outcome(streams, timeout_s=2)
        assert ended.code is StatusCode.UNAVAILABLE
        assert "verif" in ended.details.lower()
