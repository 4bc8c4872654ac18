"""How a stream ends: the status that the peer gave, or what its mistake means."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from grpc import StatusCode

from tests.contract.transport.calling import Outcome, outcome
from tests.doubles.http2_peer import (
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    Peer,
    PeerConnection,
    data,
    frame,
    framed,
    reset,
    response,
    window,
)

pytestmark = pytest.mark.anyio

Ending = Callable[[PeerConnection, int], bytes]


def once(ending: Ending) -> Callable[[PeerConnection], object]:
    """A peer that answers `bad` with the ending, and all other calls well."""

    async def script(peer: PeerConnection) -> None:
        await peer.shake_hands()
        while True:
            request = await peer.request()
            good = peer.answer(request.stream, response("next")) if request.id != "bad" else b""
            peer.send(good or ending(peer, request.stream))

    return script


def begun(peer: PeerConnection, stream: int) -> bytes:
    return peer.head(stream) + data(stream, response("a"))


@pytest.mark.parametrize("code", [code for code in StatusCode if code is not StatusCode.OK])
async def test_trailers_say_how_it_ended(connect, code):
    number = code.value[0]
    ending = once(lambda peer, stream: begun(peer, stream) + peer.trailers(stream, number, "why"))
    async with Peer(ending) as peer, connect(peer.port) as streams:
        assert await outcome(streams, "bad") == Outcome(["a"], code, "why")
        assert await outcome(streams) == Outcome(["next"])


@pytest.mark.parametrize(
    ("sent", "read"),
    [
        ("100%25 na%C3%AFve%0A", "100% naïve\n"),
        ("50% off", "50% off"),
        ("a%zz%", "a%zz%"),
        ("", ""),
    ],
)
async def test_a_message_is_percent_decoded(connect, sent, read):
    ending = once(lambda peer, stream: begun(peer, stream) + peer.trailers(stream, 3, sent))
    async with Peer(ending) as peer, connect(peer.port) as streams:
        assert await outcome(streams, "bad") == Outcome(["a"], StatusCode.INVALID_ARGUMENT, read)


def trailers_only(peer: PeerConnection, stream: int) -> bytes:
    return peer.head(stream, ends=True, **{"grpc-status": "5", "grpc-message": "no such model"})


async def test_an_answer_may_be_trailers_only(connect):
    async with Peer(once(trailers_only)) as peer, connect(peer.port) as streams:
        assert await outcome(streams, "bad") == Outcome([], StatusCode.NOT_FOUND, "no such model")


RESETS = [
    (0, StatusCode.INTERNAL),
    (1, StatusCode.INTERNAL),
    (2, StatusCode.INTERNAL),
    (3, StatusCode.INTERNAL),
    (8, StatusCode.CANCELLED),
    (11, StatusCode.RESOURCE_EXHAUSTED),
    (12, StatusCode.PERMISSION_DENIED),
]


@pytest.mark.parametrize(("number", "code"), RESETS)
@pytest.mark.parametrize("has_begun", [True, False])
async def test_a_reset_ends_its_stream_alone(connect, number, code, has_begun):
    def ending(peer: PeerConnection, stream: int) -> bytes:
        return (begun(peer, stream) if has_begun else b"") + reset(stream, number)

    async with Peer(once(ending)) as peer, connect(peer.port) as streams:
        ended = await outcome(streams, "bad")
        assert ended.code is code
        assert ended.ids == (["a"] if has_begun else [])
        assert await outcome(streams) == Outcome(["next"])
        assert len(peer.connections) == 1


def end_of_data(peer: PeerConnection, stream: int) -> bytes:
    return begun(peer, stream) + frame(DATA, END_STREAM, stream)


def no_status(peer: PeerConnection, stream: int) -> bytes:
    return begun(peer, stream) + peer.block(stream, {"x": "y"}, ends=True)


def odd_status(peer: PeerConnection, stream: int) -> bytes:
    block = b"\0\x0bgrpc-status\x04fine"  # HPACK's literal that nobody is to remember
    return begun(peer, stream) + frame(HEADERS, END_HEADERS | END_STREAM, stream, block)


def bad_gateway(peer: PeerConnection, stream: int) -> bytes:
    head = peer.block(stream, {":status": "502", "content-type": "text/html"}, ends=False)
    return head + frame(DATA, END_STREAM, stream, b"<html>")


def web_page(peer: PeerConnection, stream: int) -> bytes:
    head = peer.block(stream, {":status": "200", "content-type": "text/html"}, ends=False)
    return head + frame(DATA, END_STREAM, stream, b"<html>")


def compressed(peer: PeerConnection, stream: int) -> bytes:
    return begun(peer, stream) + frame(DATA, 0, stream, framed(b"x", flag=1))


def too_large(peer: PeerConnection, stream: int) -> bytes:
    return begun(peer, stream) + frame(DATA, 0, stream, b"\0\x7f\0\0\0" + bytes(100))


def half_a_message(peer: PeerConnection, stream: int) -> bytes:
    return begun(peer, stream) + frame(DATA, 0, stream, b"\0\0\0\0\x09ab") + peer.trailers(stream)


def no_protobuf(peer: PeerConnection, stream: int) -> bytes:
    return begun(peer, stream) + data(stream, b"\xff\xff\xff") + peer.trailers(stream)


def data_first(peer: PeerConnection, stream: int) -> bytes:
    return data(stream, response("a"))


def head_twice(peer: PeerConnection, stream: int) -> bytes:
    return begun(peer, stream) + peer.head(stream)


def capital_header(peer: PeerConnection, stream: int) -> bytes:
    return peer.head(stream, **{"X-Y": "z"})


def window_update_of_0(peer: PeerConnection, stream: int) -> bytes:
    return begun(peer, stream) + window(stream, 0)


def window_overflow(peer: PeerConnection, stream: int) -> bytes:
    return begun(peer, stream) + window(stream, 2**31 - 1)


# what the peer does, the code, what its words have
MISTAKES = [
    (end_of_data, StatusCode.UNKNOWN, "without a grpc-status"),
    (no_status, StatusCode.UNKNOWN, "without a grpc-status"),
    (odd_status, StatusCode.UNKNOWN, "'fine'"),
    (bad_gateway, StatusCode.UNAVAILABLE, "HTTP status 502"),
    (web_page, StatusCode.UNKNOWN, "content-type 'text/html'"),
    (compressed, StatusCode.INTERNAL, "compressed message (flag 1)"),
    (too_large, StatusCode.RESOURCE_EXHAUSTED, "2130706432 bytes"),
    (half_a_message, StatusCode.INTERNAL, "inside a message"),
    (no_protobuf, StatusCode.INTERNAL, "cannot be parsed"),
    (data_first, StatusCode.INTERNAL, "DATA before"),
    (head_twice, StatusCode.INTERNAL, "second response head"),
    (capital_header, StatusCode.INTERNAL, "'X-Y'"),
    (window_update_of_0, StatusCode.INTERNAL, "WINDOW_UPDATE of 0"),
    (window_overflow, StatusCode.INTERNAL, "FLOW_CONTROL_ERROR"),
]


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda row: row[0].__name__)
async def test_a_mistake_on_a_stream_ends_it_alone(connect, mistake):
    ending, code, words = mistake
    async with Peer(once(ending)) as peer, connect(peer.port) as streams:
        ended = await outcome(streams, "bad")
        assert ended.code is code
        assert words in ended.details
        assert await outcome(streams) == Outcome(["next"])
        assert len(peer.connections) == 1
