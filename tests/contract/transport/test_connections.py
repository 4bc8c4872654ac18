"""Connections: faults that end them, GOAWAY and calls made again, limits, connecting anew."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable

import pytest
from grpc import StatusCode

from proxy.triton.streams.link import LeanStream
from tests.contract.transport.calling import Outcome, open_call, outcome, read_out
from tests.doubles.http2_peer import (
    CANCEL,
    CONTINUATION,
    DATA,
    END_HEADERS,
    HAS_PRIORITY,
    HEADERS,
    PADDED,
    PING,
    PRIORITY,
    PUSH,
    REFUSED_STREAM,
    RESET,
    SETTINGS,
    WINDOW,
    Peer,
    PeerConnection,
    data,
    frame,
    framed,
    go_away,
    reset,
    response,
    settings,
    window,
)

pytestmark = pytest.mark.anyio


async def good(peer: PeerConnection) -> None:
    await peer.shake_hands()
    while True:
        request = await peer.request()
        peer.send(peer.answer(request.stream, response(request.id)))


def odd_frames(peer: PeerConnection, stream: int) -> list[bytes]:
    """Allowed, and rare."""
    early = peer.block(stream, {":status": "103", "link": "x"}, ends=False)
    block = peer.encode({":status": "200", "content-type": "application/grpc", "x": "y" * 40})
    padded_head = frame(
        HEADERS, PADDED | HAS_PRIORITY, stream, b"\3" + bytes(5) + block[:9] + bytes(3)
    )
    message = framed(response("a"))
    padded = [
        frame(DATA, PADDED, stream, b"\5" + message[:7] + bytes(5)),
        frame(DATA, PADDED, stream, b"\0" + message[7:]),
    ]
    return [
        frame(PRIORITY, 0, stream, bytes(5)),
        early,
        padded_head,
        frame(CONTINUATION, 0, stream, block[9:10]),
        frame(CONTINUATION, END_HEADERS, stream, block[10:]),
        frame(0xBE, 0xFF, stream, b"grease"),
        *padded,
        frame(DATA, 0, stream),
        frame(PING, 0, 0, b"12345678"),
        settings(MAX_FRAME_SIZE=20_000),
        peer.trailers(stream),
    ]


@pytest.mark.parametrize("is_slow", [False, True])
async def test_frames_that_are_rare_and_allowed(connect, is_slow):
    async def odd(peer: PeerConnection) -> None:
        await peer.shake_hands()
        stream = (await peer.request()).stream
        frames = b"".join(odd_frames(peer, stream))
        await peer.send_slowly(*(bytes([byte]) for byte in frames) if is_slow else [frames])
        peer.send(peer.answer((await peer.request()).stream, response("b")))

    async with Peer(odd) as peer, connect(peer.port) as streams:
        assert await outcome(streams) == Outcome(["a"])
        assert await outcome(streams) == Outcome(["b"])


# A fault of the connection, and the words for it.
FAULTS: dict[str, tuple[Callable[[int], bytes], str]] = {
    "a frame too long": (lambda _: b"\xff\xff\xff\0\0\0\0\0\0", "frame of 16777215 bytes"),
    "DATA of no stream": (lambda _: data(0, b"x"), "stream 0"),
    "DATA of the peer's stream": (lambda _: data(2, b"x"), "stream 2"),
    "DATA of a stream to come": (lambda stream: data(stream + 2, b"x"), "never opened"),
    "RST_STREAM too short": (lambda stream: frame(RESET, 0, stream, b"abc"), "of 3 bytes"),
    "RST_STREAM of no stream": (lambda _: reset(0, CANCEL), "stream 0"),
    "WINDOW_UPDATE too long": (lambda _: frame(WINDOW, 0, 0, bytes(5)), "of 5 bytes"),
    "WINDOW_UPDATE of 0": (lambda _: window(0, 0), "WINDOW_UPDATE of 0"),
    "a window too wide": (lambda _: window(0, 2**31 - 1), "FLOW_CONTROL_ERROR"),
    "PING too short": (lambda _: frame(PING, 0, 0, b"abc"), "PING of 3 bytes"),
    "PING on a stream": (lambda stream: frame(PING, 0, stream, bytes(8)), "PING on stream"),
    "SETTINGS cut": (lambda _: frame(SETTINGS, 0, 0, bytes(7)), "SETTINGS of 7 bytes"),
    "SETTINGS that acknowledge and ask": (
        lambda _: frame(SETTINGS, 1, 0, bytes(6)),
        "ACK with settings",
    ),
    "a frame too small": (lambda _: settings(MAX_FRAME_SIZE=1), "MAX_FRAME_SIZE 1"),
    "a first window too wide": (lambda _: settings(INITIAL_WINDOW_SIZE=2**31), "2147483648"),
    "push": (lambda stream: frame(PUSH, END_HEADERS, stream, bytes(4)), "PUSH_PROMISE"),
    "headers broken": (
        lambda s: frame(HEADERS, END_HEADERS, s, b"\xff\xff\xff"),
        "HPACK does not know",
    ),
    "headers not continued": (
        lambda s: frame(HEADERS, 0, s, b"\x88") + frame(PING, 0, 0, bytes(8)),
        "not continued",
    ),
    "headers continued from nothing": (lambda s: frame(CONTINUATION, 4, s, b"\x88"), "which has"),
    "headers without end": (
        lambda s: frame(HEADERS, 0, s) + 9 * frame(CONTINUATION, 0, s, bytes(16_000)),
        "header block of",
    ),
    "padding too long": (lambda s: frame(HEADERS, PADDED | 4, s, b"\xffab"), "padding longer"),
    "GOAWAY too short": (lambda _: frame(7, 0, 0, bytes(3)), "GOAWAY of 3 bytes"),
}


@pytest.mark.parametrize("name", FAULTS)
async def test_a_fault_of_the_connection_ends_its_calls_and_the_next_one_connects_anew(
    connect, name
):
    fault, words = FAULTS[name]

    async def faulty(peer: PeerConnection) -> None:
        await peer.shake_hands()
        requests = [await peer.request(), await peer.request()]
        peer.send(fault(requests[-1].stream))
        await peer.closed()

    async with Peer(faulty, good) as peer, connect(peer.port) as streams:
        ended = await asyncio.gather(*(outcome(streams) for _ in range(2)))
        assert {one.code for one in ended} == {StatusCode.INTERNAL}
        assert all(words in one.details for one in ended), ended
        assert await outcome(streams) == Outcome(["r"])
        assert len(peer.connections) == 2
        assert peer.connections[0].has_gone_away


async def test_a_connection_that_is_lost_ends_its_calls(connect):
    async def leaving(peer: PeerConnection) -> None:
        await peer.shake_hands()
        stream = (await peer.request()).stream
        peer.send(peer.head(stream), data(stream, response("a")))
        await asyncio.sleep(0.05)

    async with Peer(leaving, good) as peer, connect(peer.port) as streams:
        ended = await outcome(streams)
        assert (ended.ids, ended.code) == (["a"], StatusCode.UNAVAILABLE)
        assert await outcome(streams) == Outcome(["r"])


async def test_a_stream_that_has_ended_is_forgotten_before_its_deadline(connect):
    async with Peer(good) as peer, connect(peer.port) as streams:
        for _ in range(3):
            assert await outcome(streams, timeout_s=600) == Outcome(["r"])
        gc.collect()
        assert not [one for one in gc.get_objects() if isinstance(one, LeanStream)]


async def test_going_away_ends_what_is_begun_in_its_own_time_and_replays_the_rest(connect):
    async def going(peer: PeerConnection) -> None:
        await peer.shake_hands()
        first, _, _ = [await peer.request() for _ in range(3)]
        peer.send(peer.head(first.stream), data(first.stream, response("a")))
        peer.send(go_away(first.stream, text=b"max age"))
        await asyncio.sleep(0.1)
        peer.send(data(first.stream, response("b")), peer.trailers(first.stream))
        await peer.closed()

    async with Peer(going, good) as peer, connect(peer.port) as streams:
        calls = [outcome(streams, str(number)) for number in range(3)]
        ended = await asyncio.gather(*calls)
        assert ended == [Outcome(["a", "b"]), Outcome(["1"]), Outcome(["2"])]
        assert await outcome(streams) == Outcome(["r"])
        assert len(peer.connections) == 2


@pytest.mark.parametrize("refusals", [1, 2])
async def test_a_refused_stream_is_opened_once_more(connect, refusals):
    async def refusing(peer: PeerConnection) -> None:
        await peer.shake_hands()
        for _ in range(refusals):
            peer.send(reset((await peer.request()).stream, REFUSED_STREAM))
        peer.send(peer.answer((await peer.request()).stream, response("a")))

    async with Peer(refusing) as peer, connect(peer.port) as streams:
        for _ in range(refusals - 1):
            assert (await outcome(streams)).code is StatusCode.UNAVAILABLE
        assert await outcome(streams) == Outcome(["a"])


async def test_a_stream_that_has_begun_is_not_opened_again(connect):
    async def late(peer: PeerConnection) -> None:
        await peer.shake_hands()
        stream = (await peer.request()).stream
        peer.send(peer.head(stream), reset(stream, REFUSED_STREAM))
        peer.send(peer.answer((await peer.request()).stream, response("a")))

    async with Peer(late) as peer, connect(peer.port) as streams:
        assert (await outcome(streams)).code is StatusCode.UNAVAILABLE


async def test_closing_a_stream_resets_it_and_no_other(connect):
    async def watching(peer: PeerConnection) -> None:
        await peer.shake_hands()
        requests = [await peer.request() for _ in range(2)]
        gone, stays = (one.stream for one in sorted(requests, key=lambda one: one.id))
        for stream in (gone, stays):
            peer.send(peer.head(stream), data(stream, response("a")))
        await peer.until(lambda: peer.resets)
        peer.send(data(gone, response("late")), peer.trailers(gone))
        peer.send(data(stays, response("b")), peer.trailers(stays))
        await peer.closed()

    async with Peer(watching) as peer, connect(peer.port) as streams:
        gone, stays = open_call(streams, "gone"), open_call(streams, "stays")
        assert (await anext(gone)).infer_response.id == "a"
        gone.cancel()
        assert await read_out(stays) == Outcome(["a", "b"])
        assert list(peer.connections[0].resets.values()) == [CANCEL]


async def test_a_stream_that_is_released_reads_to_its_end(connect):
    is_released, is_sent = asyncio.Event(), asyncio.Event()

    async def going_on(peer: PeerConnection) -> None:
        await peer.shake_hands()
        stream = (await peer.request()).stream
        peer.send(peer.head(stream), data(stream, response("a")))
        await is_released.wait()
        more = data(stream, *(response("b", size=200_000) for _ in range(9)))
        await peer.send_within_windows(stream, more)
        peer.send(peer.trailers(stream))
        is_sent.set()
        await peer.closed()

    async with Peer(going_on) as peer:
        async with connect(peer.port) as streams:
            stream = open_call(streams)
            assert (await anext(stream)).infer_response.id == "a"
            stream.release()
            is_released.set()
            await is_sent.wait()
        assert not peer.connections[0].resets


async def test_the_peers_limit_of_streams_is_kept_and_more_connections_are_opened(connect):
    most, count = 3, 40

    async def narrow(peer: PeerConnection) -> None:
        await peer.shake_hands(MAX_CONCURRENT_STREAMS=most)
        while True:
            request = await peer.request()
            assert peer.open_streams <= most
            await asyncio.sleep(0.002)
            peer.send(peer.answer(request.stream, response(request.id)))

    async with Peer(narrow) as peer, connect(peer.port) as streams:
        calls = [outcome(streams, str(number)) for number in range(count)]
        assert await asyncio.gather(*calls) == [Outcome([str(n)]) for n in range(count)]
        assert len(peer.connections) in range(2, 9)
