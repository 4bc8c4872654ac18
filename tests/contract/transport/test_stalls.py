"""Peers that stand still, and peers that are not there: every call ends, and in time."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from grpc import StatusCode

from proxy.triton.streams.lean_http2 import LeanOptions
from proxy.triton.streams.link import KeepaliveTimes
from tests.contract.transport.calling import Outcome, outcome, recovered
from tests.doubles.http2_peer import Peer, PeerConnection, data, response, window
from tests.fixtures.stack import free_port

pytestmark = pytest.mark.anyio

QUICK = LeanOptions(
    keepalive=KeepaliveTimes(quiet_s=0.05, answer_s=1), connect_timeout_s=3, backoff_s=(0.02, 0.1)
)


async def silent(peer: PeerConnection) -> None:
    await peer.shake_hands()
    peer.answers_pings = False
    await peer.closed()


async def mute(_: PeerConnection) -> None:
    """Accepts, and says nothing at all."""
    await asyncio.sleep(10)


@pytest.mark.parametrize("script", [silent, mute])
async def test_a_deadline_is_kept_without_the_peer(connect, script):
    async with Peer(script) as peer, connect(peer.port) as streams:
        start = asyncio.get_running_loop().time()
        assert (await outcome(streams, timeout_s=0.2)).code is StatusCode.DEADLINE_EXCEEDED
        assert asyncio.get_running_loop().time() - start > 0.15


async def test_a_deadline_resets_the_stream_and_is_told_to_the_peer(connect):
    async def watching(peer: PeerConnection) -> None:
        await peer.shake_hands()
        peer.send(peer.answer((await peer.request()).stream, response("first")))
        request = await peer.request()
        assert request.headers["grpc-timeout"].endswith("m")
        assert 0 < int(request.headers["grpc-timeout"][:-1]) <= 510
        peer.send(peer.head(request.stream), data(request.stream, response("a")))
        await peer.until(lambda: peer.resets)
        peer.send(peer.answer((await peer.request()).stream, response("b")))

    async with Peer(watching) as peer, connect(peer.port) as streams:
        assert await outcome(streams) == Outcome(["first"])
        ended = await outcome(streams, timeout_s=0.5)
        assert (ended.ids, ended.code) == (["a"], StatusCode.DEADLINE_EXCEEDED)
        assert await outcome(streams) == Outcome(["b"])


async def test_a_peer_that_does_not_read_stalls_nothing_but_itself(connect):
    """32 MiB that nobody takes: the deadline comes, and leaving is not waited for."""

    async def deaf(peer: PeerConnection) -> None:
        await peer.shake_hands(INITIAL_WINDOW_SIZE=2**31 - 1)
        peer.send(window(0, 2**30))
        await peer.until(lambda: sum(peer.received.values()) > 65_535)
        peer.stop_reading()
        await asyncio.sleep(10)

    async with Peer(deaf) as peer, connect(peer.port) as streams:
        calls = [outcome(streams, size=16 * 2**20, timeout_s=0.5) for _ in range(2)]
        running = asyncio.gather(*calls)
        await asyncio.sleep(0.3)
        waiting = [link._transport.get_write_buffer_size() for link in streams._open]
        assert sum(waiting) < 2**20, "the rest is not copied before it can go"
        ended = await running
        assert {one.code for one in ended} == {StatusCode.DEADLINE_EXCEEDED}


async def test_nobody_listens(connect):
    async with connect(free_port()) as streams:
        for _ in range(3):
            ended = await outcome(streams)
            assert ended.code is StatusCode.UNAVAILABLE
            assert "connect" in ended.details


async def test_a_peer_that_comes_back_is_found_again(connect):
    async def brief(peer: PeerConnection) -> None:
        await peer.shake_hands()
        peer.send(peer.answer((await peer.request()).stream, response("a")))
        await asyncio.sleep(0.02)

    port = free_port()
    async with connect(port) as streams:
        assert (await outcome(streams)).code is StatusCode.UNAVAILABLE
        async with Peer(brief, port=port):
            assert await recovered(streams, Outcome(["a"]), tries=40)
        assert (await outcome(streams)).code is StatusCode.UNAVAILABLE
        async with Peer(brief, port=port):
            assert await recovered(streams, Outcome(["a"]), tries=40)


async def test_a_web_server_is_no_triton(connect):
    async def http1(peer: PeerConnection) -> None:
        peer.send(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")

    async with Peer(http1) as peer, connect(peer.port, QUICK) as streams:
        ended = await outcome(streams)
        assert ended.code is StatusCode.UNAVAILABLE
        assert "does not speak HTTP/2" in ended.details


async def test_a_peer_that_answers_no_ping_is_given_up(connect):
    options = replace(QUICK, keepalive=KeepaliveTimes(quiet_s=0.05, answer_s=0.05))
    async with Peer(silent) as peer, connect(peer.port, options) as streams:
        ended = await outcome(streams, timeout_s=5)
        assert ended.code is StatusCode.UNAVAILABLE
        assert "answer a PING for 0.05 seconds" in ended.details
        assert peer.connections[0].pings == 1


async def test_a_silent_peer_that_answers_pings_is_asked_twice_and_then_waited_for(connect):
    async def thinking(peer: PeerConnection) -> None:
        await peer.shake_hands()
        stream = (await peer.request()).stream
        await asyncio.sleep(0.4)
        asked = peer.pings
        peer.send(peer.answer(stream, response(str(asked))))
        await peer.closed()

    async with Peer(thinking) as peer, connect(peer.port, QUICK) as streams:
        ended = await outcome(streams)
        assert (len(ended.ids), ended.code) == (1, StatusCode.OK)
        assert int(ended.ids[0]) in (1, 2)


async def test_no_call_no_ping(connect):
    async def idle(peer: PeerConnection) -> None:
        await peer.shake_hands()
        peer.send(peer.answer((await peer.request()).stream, response("a")))
        await peer.closed()

    async with Peer(idle) as peer, connect(peer.port, QUICK) as streams:
        assert await outcome(streams) == Outcome(["a"])
        await asyncio.sleep(0.5)
        assert peer.connections[0].pings == 0
