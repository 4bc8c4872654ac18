"""Bytes come cut anywhere, and frames of streams come in any order between one another."""

from __future__ import annotations

import asyncio
import random

import pytest

from tests.contract.transport.calling import Outcome, outcome
from tests.doubles.http2_peer import Peer, PeerConnection, data, frames_of, response

pytestmark = pytest.mark.anyio


async def test_an_answer_cut_at_every_byte(connect):
    messages = [response("a"), response("b", size=20)]
    sizes = []

    async def cutting(peer: PeerConnection) -> None:
        await peer.shake_hands()
        while True:
            request = await peer.request()
            whole, cut = peer.answer(request.stream, *messages), int(request.id)
            sizes.append(len(whole))
            await peer.send_slowly(whole[:cut], whole[cut:])

    async with Peer(cutting) as peer:
        async with connect(peer.port) as streams:
            cut = 0
            while cut <= max(sizes, default=0):
                assert await outcome(streams, str(cut)) == Outcome(["a", "b"])
                cut += 1
        assert cut > 80


async def test_an_answer_byte_by_byte(connect):
    messages = [response("a"), response("b", size=20)]

    async def crumbling(peer: PeerConnection) -> None:
        await peer.shake_hands()
        whole = peer.answer((await peer.request()).stream, *messages)
        await peer.send_slowly(*(bytes([byte]) for byte in whole))
        await peer.closed()

    async with Peer(crumbling) as peer, connect(peer.port) as streams:
        assert await outcome(streams) == Outcome(["a", "b"])


@pytest.mark.parametrize("seed", range(4))
async def test_frames_of_streams_come_between_one_another(connect, seed):
    """In any order, a message in many frames, frames with many messages, many frames in a read."""
    count, length = 20, 12
    names = [[f"{call}.{at}" for at in range(length)] for call in range(count)]
    dice = random.Random(seed)

    async def shuffling(peer: PeerConnection) -> None:
        await peer.shake_hands()
        requests = [await peer.request() for _ in range(count)]
        for request in requests:
            peer.send(peer.head(request.stream))
        left = []
        for request in requests:
            mine = names[int(request.id)]
            messages = [response(name, size=dice.choice([0, 50])) for name in mine]
            whole = data(request.stream, *messages, most=dice.choice([7, 60, 9000]))
            left.append((request.stream, frames_of(whole)))
        while left:
            stream, frames = chosen = dice.choice(left)
            peer.send(frames.pop(0))
            if not frames:
                peer.send(peer.trailers(stream))
                left.remove(chosen)
        await peer.closed()

    async with Peer(shuffling) as peer, connect(peer.port) as streams:
        calls = [outcome(streams, str(call)) for call in range(count)]
        assert await asyncio.gather(*calls) == [Outcome(expected) for expected in names]
