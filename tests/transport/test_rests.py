"""With many streams the lean transport lets messages gather between two reads."""

from __future__ import annotations

import asyncio
import time

import pytest
from grpc import StatusCode

from proxy.triton.streams.link import FEW_STREAMS, REST_S, Link
from tests.doubles.http2_peer import Peer, PeerConnection, data, response
from tests.transport.calling import outcome

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(20)]


@pytest.fixture
def rests(monkeypatch) -> list[float]:
    """When there was one."""
    taken, rest = [], Link._rest

    def counted(link: Link) -> None:
        taken.append(time.monotonic())
        rest(link)

    monkeypatch.setattr(Link, "_rest", counted)
    return taken


@pytest.mark.parametrize("count", [FEW_STREAMS, FEW_STREAMS + 2])
async def test_what_comes_in_a_rest_is_read_after_it_and_so_is_the_end(
    connect, is_lean, rests, count
):
    async def script(peer: PeerConnection) -> None:
        await peer.shake_hands()
        streams = [(await peer.request()).stream for _ in range(count)]
        peer.send(*map(peer.head, streams))
        for name in "abc":
            peer.send(*(data(stream, response(name)) for stream in streams))
            await asyncio.sleep(REST_S / 4)
        peer.end()

    async with Peer(script) as peer, connect(peer.port) as streams:
        ended = await asyncio.gather(*(outcome(streams, f"{n}") for n in range(count)))
    assert {(*one.ids, one.code) for one in ended} == {("a", "b", "c", StatusCode.UNAVAILABLE)}
    assert bool(rests) == (is_lean and count > FEW_STREAMS)


async def test_a_connection_closed_in_a_rest_is_left_alone(connect, rests):
    """By us: the rest ends later than the connection."""

    async def script(peer: PeerConnection) -> None:
        await peer.shake_hands()
        for _ in range(FEW_STREAMS + 2):
            peer.send(peer.head((await peer.request()).stream))
        await peer.closed()

    async with Peer(script) as peer:
        async with connect(peer.port) as streams:
            calls = [
                asyncio.ensure_future(outcome(streams, f"{n}")) for n in range(FEW_STREAMS + 2)
            ]
            await asyncio.sleep(0.05)
            for call in calls:
                call.cancel()
            await asyncio.wait(calls)
        await asyncio.sleep(2 * REST_S)
