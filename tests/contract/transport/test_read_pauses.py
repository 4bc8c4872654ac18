"""With many streams the lean transport lets messages gather between two reads."""

from __future__ import annotations

import asyncio

import pytest
from grpc import StatusCode

from proxy.triton.streams.link import FEW_STREAMS, LONGEST_PAUSE_S
from tests.contract.transport.calling import open_call, outcome, read_out
from tests.doubles.http2_peer import Peer, PeerConnection, data, response

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("count", [FEW_STREAMS, FEW_STREAMS + 2])
async def test_what_comes_in_a_pause_is_read_after_it_and_so_is_the_end(connect, count):

    async def script(peer: PeerConnection) -> None:
        await peer.shake_hands()
        streams = [(await peer.request()).stream for _ in range(count)]
        peer.send(*map(peer.head, streams))
        for name in "abc":
            peer.send(*(data(stream, response(name)) for stream in streams))
            await asyncio.sleep(LONGEST_PAUSE_S)
        peer.end()

    async with Peer(script) as peer, connect(peer.port) as streams:
        first, *others = [open_call(streams, f"{number}") for number in range(count)]
        reading = [asyncio.ensure_future(read_out(call)) for call in others]
        assert (await anext(first)).infer_response.id == "a"
        ended = await asyncio.gather(read_out(first), *reading)
    assert {one.code for one in ended} == {StatusCode.UNAVAILABLE}
    got = {("a", *ended[0].ids), *(tuple(one.ids) for one in ended[1:])}
    assert got == {("a", "b", "c")}


async def test_a_connection_closed_in_a_pause_is_left_alone(connect):
    """By us: the pause ends later than the connection."""

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
        await asyncio.sleep(2 * LONGEST_PAUSE_S)
