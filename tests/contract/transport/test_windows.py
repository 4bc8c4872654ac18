"""Flow control both ways, large messages, many streams, and readers that do not read."""

from __future__ import annotations

import asyncio

import pytest

from proxy.triton.http2.connection import Http2Limits
from proxy.triton.streams.lean_http2 import LeanOptions
from tests.contract.transport.calling import Outcome, open_call, outcome, read_out
from tests.doubles.http2_peer import Peer, PeerConnection, Request, data, response, settings, window

pytestmark = pytest.mark.anyio

LARGE = 16 * 1024 * 1024


async def test_a_request_through_windows_of_one_byte(connect):
    async def narrow(peer: PeerConnection) -> None:
        await peer.shake_hands(INITIAL_WINDOW_SIZE=1)
        for _ in range(2):
            request = await peer.request()
            peer.send(peer.answer(request.stream, response(request.id)))

    async with Peer(narrow) as peer, connect(peer.port) as streams:
        calls = [outcome(streams, f"{number}" * 300) for number in (1, 2)]
        assert await asyncio.gather(*calls) == [Outcome(["1" * 300]), Outcome(["2" * 300])]


async def test_an_answer_through_windows_of_one_byte(connect):
    """The peer sends a byte for each that it was given."""
    options = LeanOptions(limits=Http2Limits(stream_window=1))

    async def narrow(peer: PeerConnection) -> None:
        await peer.shake_hands()
        stream = (await peer.request()).stream
        peer.send(peer.head(stream))
        whole = data(stream, response("a"), response("b" * 300), most=1)
        for sent, at in enumerate(range(0, len(whole), 10)):
            await peer.until(lambda sent=sent: peer.credits[stream] >= sent)
            peer.send(whole[at : at + 10])
        peer.send(peer.trailers(stream))
        await peer.closed()

    async with Peer(narrow) as peer, connect(peer.port, options) as streams:
        assert await outcome(streams) == Outcome(["a", "b" * 300])


async def test_a_first_window_that_changes_while_a_request_is_sent(connect):
    """From 1,000 bytes to fewer than were sent, so below 0, and up again."""

    async def changing(peer: PeerConnection) -> None:
        peer.grants = False
        await peer.shake_hands(INITIAL_WINDOW_SIZE=1_000)
        await peer.until(lambda: sum(peer.received.values()) == 1_000)
        (stream,) = peer.received
        peer.send(settings(INITIAL_WINDOW_SIZE=10), window(stream, 980))
        await asyncio.sleep(0.02)
        assert peer.received[stream] == 1_000
        peer.send(window(stream, 10), window(stream, 5))
        await peer.until(lambda: peer.received[stream] == 1_005)
        peer.send(settings(INITIAL_WINDOW_SIZE=60_000))
        request = await peer.request()
        peer.send(peer.answer(stream, response(request.id)))

    async with Peer(changing) as peer, connect(peer.port) as streams:
        assert await outcome(streams, "r" * 2_000) == Outcome(["r" * 2_000])


async def test_large_messages_both_ways_and_small_ones_beside_them(connect):
    async def answer(peer: PeerConnection, request: Request) -> None:
        stream, size = request.stream, LARGE if request.id == "large" else 0
        assert len(request.body) > size
        peer.send(peer.head(stream))
        await peer.send_within_windows(stream, data(stream, response(request.id, size=size)))
        peer.send(peer.trailers(stream))

    async def echoing(peer: PeerConnection) -> None:
        await peer.shake_hands()
        answers = [asyncio.create_task(answer(peer, await peer.request())) for _ in range(31)]
        await asyncio.gather(*answers)
        await peer.closed()

    async with Peer(echoing) as peer, connect(peer.port) as streams:
        large = asyncio.create_task(outcome(streams, "large", size=LARGE, timeout_s=20))
        for number in range(30):
            assert await outcome(streams, str(number)) == Outcome([str(number)])
        assert await large == Outcome(["large"])


async def test_a_thousand_streams_on_one_connection(connect):
    count = 1_000

    async def all_at_once(peer: PeerConnection) -> None:
        await peer.shake_hands()
        requests = [await peer.request() for _ in range(count)]
        for name in ("a", "b"):
            for request in requests:
                begins = peer.head(request.stream) if name == "a" else b""
                peer.send(begins, data(request.stream, response(f"{name}{request.id}")))
            await asyncio.sleep(0)
        for request in requests:
            peer.send(peer.trailers(request.stream))
        await peer.closed()

    async with Peer(all_at_once) as peer, connect(peer.port) as streams:
        calls = [outcome(streams, str(number), timeout_s=20) for number in range(count)]
        expected = [Outcome([f"a{number}", f"b{number}"]) for number in range(count)]
        assert await asyncio.gather(*calls) == expected
        assert len(peer.connections) == 1


async def test_a_reader_that_does_not_read_stops_its_own_stream_alone(connect):
    """What waits for it is bounded, while another stream gets all its 16 MiB."""
    size = 16_000

    async def flood(peer: PeerConnection, stream: int, name: str) -> None:
        peer.send(peer.head(stream))
        for number in range(LARGE // size):
            whole = data(stream, response(f"{name}{number}", size=size - 100))
            await peer.send_within_windows(stream, whole)
        peer.send(peer.trailers(stream))

    async def flooding(peer: PeerConnection) -> None:
        await peer.shake_hands()
        requests = [await peer.request() for _ in range(2)]
        await asyncio.gather(*(flood(peer, one.stream, one.id) for one in requests))
        await peer.closed()

    async with Peer(flooding) as peer, connect(peer.port) as streams:
        slow, quick = (open_call(streams, name, timeout_s=20) for name in ("slow", "quick"))
        await anext(slow)
        assert len((await read_out(quick)).ids) == LARGE // size
        sent = sum(peer.connections[0].sent.values())
        assert sent < LARGE * 1.25
        assert len((await read_out(slow)).ids) == LARGE // size - 1
