"""With a peer that sends random bytes, every call ends; the connection closes or continues."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress

import pytest

from tests.contract.transport.calling import Outcome, outcome, recovered
from tests.doubles.http2_peer import Peer, PeerConnection, frame, response
from tests.fixtures.stack import HANG_S

pytestmark = pytest.mark.anyio


KINDS = range(12)


def nonsense(dice: random.Random, peer: PeerConnection, streams: list[int]) -> bytes:
    """Good answers with some bytes changed, frames of chance, bytes of chance."""
    frames = [peer.answer(stream, response("a"), response("b", size=50)) for stream in streams]
    frames += [
        frame(
            dice.choice(KINDS),
            dice.choice([0, 1, 4, 5, 8, 0x20, 0xFF]),
            dice.choice([0, *streams, 99]),
            dice.randbytes(dice.choice([0, 4, 5, 8, 30])),
        )
        for _ in range(6)
    ]
    dice.shuffle(frames)
    whole = bytearray(b"".join(frames[: dice.randrange(1, len(frames))]))
    for _ in range(dice.choice([0, 0, 1, 5])):
        whole[dice.randrange(len(whole))] = dice.randrange(256)
    return bytes(whole) + dice.randbytes(dice.choice([0, 0, 40]))


@pytest.mark.parametrize("seed", range(25))
async def test_anything_may_come(connect, seed):
    dice = random.Random(seed)

    async def babbling(peer: PeerConnection) -> None:
        await peer.shake_hands()
        streams = [(await peer.request()).stream for _ in range(3)]
        whole = nonsense(dice, peer, streams)
        cuts = sorted(dice.randrange(len(whole)) for _ in range(3))
        pieces = [whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
        with suppress(ConnectionError):  # the client had enough
            await peer.send_slowly(*pieces)
        await asyncio.sleep(0.02)

    async def good(peer: PeerConnection) -> None:
        await peer.shake_hands()
        while True:
            peer.send(peer.answer((await peer.request()).stream, response("good")))

    async with Peer(babbling, good) as peer, connect(peer.port) as streams:
        calls = asyncio.gather(*(outcome(streams, timeout_s=1) for _ in range(3)))
        assert len(await asyncio.wait_for(calls, HANG_S)) == 3
        assert await recovered(streams, Outcome(["good"]), tries=40)
