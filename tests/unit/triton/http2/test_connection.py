"""The connection as a function of bytes, however they are cut, and the heads that it writes."""

from __future__ import annotations

import struct
from collections import Counter

import pytest
from grpc import StatusCode
from hpack import Decoder, Encoder
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.triton.http2.connection import (
    CallEnded,
    CallRefused,
    Connection,
    Event,
    Http2Limits,
    MessageArrived,
)
from proxy.triton.http2.frames import END_HEADERS, ErrorCode, Kind
from proxy.triton.http2.headers import HeadEncoder, HeaderBlocks
from tests.doubles import http2_peer as peer
from tests.fixtures.examples import examples
from tests.strategies import cuts

FIXED = settings(derandomize=True, max_examples=examples(200))
READY = peer.settings() + peer.frame(peer.SETTINGS, peer.ACK, 0)
HEAD = [(":method", "POST"), (":path", "/x")]
CALLS = 3
STREAMS = tuple(range(1, 2 * CALLS, 2))

BLOCKS = [
    b"\x88",  # :status 200
    b"\x88\x5f\x10application/grpc",  # and the content-type, as literals
    b"\0\x0bgrpc-status\x010",
    b"\0\x0bgrpc-status\x0213",
    b"",
    b"\xff\xff",
]
NUMBERS = st.sampled_from([0, 1, 7, 8, 100, 65_535, 2**31 - 1, 2**31, 2**32 - 1]).map(
    lambda number: struct.pack(">I", number)
)
MESSAGES = st.lists(st.binary(max_size=40), max_size=3).map(lambda some: peer.framed(*some))
PAYLOADS = st.one_of(
    st.sampled_from(BLOCKS), NUMBERS, MESSAGES, st.tuples(NUMBERS, NUMBERS).map(b"".join),
    st.binary(max_size=60),
)  # fmt: skip
FRAMES = st.builds(
    peer.frame,
    st.integers(0, 11),
    st.sampled_from([0, 1, 4, 5, 8, 0xC, 0xD, 0x20, 0x25, 0xFF]),
    st.integers(0, 2 * CALLS + 2),
    PAYLOADS,
)
TALK = st.lists(FRAMES, max_size=12).map(b"".join)
HEADS = b"".join(peer.frame(peer.HEADERS, 4, stream, BLOCKS[1]) for stream in STREAMS)
ANYTHING = st.one_of(TALK, TALK.map(lambda talk: HEADS + talk), st.binary(max_size=200))


def begun() -> Connection:
    """With three calls open."""
    connection = Connection(Http2Limits(stream_window=100, max_message=1000))
    assert connection.receive(READY)
    for _ in range(CALLS):
        connection.open(HEAD, b"request")
    assert connection.output(2**20)
    return connection


def heard(connection: Connection, pieces: list[bytes]) -> tuple[list[Event], bytes]:
    events, output = [], b""
    for piece in pieces:
        events += connection.receive(piece)
        output += connection.output(2**20)
    return events, output


def test_the_strategies_reach_good_answers():
    talk = HEADS + peer.data(1, b"a", b"b") + peer.frame(peer.HEADERS, 5, 1, BLOCKS[2])
    events, _ = heard(begun(), [talk])
    assert [event.message for event in events[:2]] == [b"a", b"b"]
    assert events[2].status.is_ok


@FIXED
@given(ANYTHING)
def test_whatever_comes_every_call_ends_once_and_nothing_after_its_end(talk):
    connection = begun()
    events, output = heard(connection, [talk])
    events += connection.close("enough")
    output += connection.output(2**20)
    ends = Counter()
    for event in events:
        if isinstance(event, MessageArrived):
            assert not ends[event.stream]
        elif isinstance(event, (CallEnded, CallRefused)):
            ends[event.stream] += 1
    assert ends == dict.fromkeys(STREAMS, 1)
    assert connection.why_closed
    assert peer.frames_of(output)[-1][3] == peer.GOAWAY
    assert not connection.output(2**20)


@FIXED
@given(st.data())
def test_the_result_is_the_same_however_the_bytes_are_cut(data):
    talk = data.draw(ANYTHING)
    assert heard(begun(), [talk]) == heard(begun(), data.draw(cuts(talk)))


@FIXED
@given(
    st.lists(st.integers(0, 300), min_size=1, max_size=12),
    st.integers(1, 120),
    st.integers(1, 120),
    st.booleans(),
)
def test_a_reader_gets_all_and_holds_no_more_than_a_window_and_a_message(
    sizes, window, step, reads_late
):
    """The peer sends `step` bytes at a time, as its window allows; it never stands for ever."""
    connection = Connection(Http2Limits(stream_window=window, max_message=1000))
    connection.receive(READY)
    stream = connection.open(HEAD, b"request")
    connection.receive(peer.frame(peer.HEADERS, peer.END_HEADERS, stream, BLOCKS[1]))
    connection.output(2**20)
    left = peer.framed(*(bytes(size) for size in sizes))
    read, unread = [], []
    while left:
        size = min(step, window, len(left))
        if size:
            unread += connection.receive(peer.frame(peer.DATA, 0, stream, left[:size]))
            left, window = left[size:], window - size
        assert sum(len(event.message) for event in unread) <= 120 + max(sizes)
        if unread and (not size or not reads_late):
            connection.message_was_read(stream)
            read.append(unread.pop(0))
        output = connection.output(2**20)
        assert size or output or unread, "nothing can move any more"
        window += credit_of(output, stream)
    assert [len(event.message) for event in read + unread] == sizes


def credit_of(output: bytes, stream: int) -> int:
    updates = [one for one in peer.frames_of(output) if one[3] == peer.WINDOW]
    own = [one for one in updates if int.from_bytes(one[5:9], "big") == stream]
    return sum(int.from_bytes(one[9:], "big") for one in own)


@pytest.mark.parametrize(
    ("bad", "code", "words"),
    [
        (peer.framed(b"x", flag=1), StatusCode.INTERNAL, "flag 1"),
        (peer.framed(bytes(51)), StatusCode.RESOURCE_EXHAUSTED, "51 bytes, more than the 50"),
        (peer.framed(bytes(51))[:5], StatusCode.RESOURCE_EXHAUSTED, "51 bytes"),
    ],
)
def test_a_bad_message_ends_the_stream_behind_those_before_it(bad, code, words):
    connection = Connection(Http2Limits(max_message=50))
    connection.receive(READY)
    connection.open(HEAD, b"request")
    talk = peer.framed(b"a", bytes(50)) + bad
    head = peer.frame(peer.HEADERS, peer.END_HEADERS, 1, BLOCKS[1])
    events, output = heard(connection, [head + peer.frame(peer.DATA, 0, 1, talk)])
    *messages, end = events
    assert [event.message for event in messages] == [b"a", bytes(50)]
    assert end.status.code is code
    assert words in end.status.details
    assert peer.reset(1, ErrorCode.CANCEL) in output


def test_more_than_a_streams_window_ends_the_stream():
    connection = begun()
    events, output = heard(connection, [HEADS + peer.data(1, bytes(96))])
    assert [(event.stream, event.status.code) for event in events] == [(1, StatusCode.INTERNAL)]
    assert "1 bytes beyond the window of 100" in events[0].status.details
    assert peer.reset(1, ErrorCode.FLOW_CONTROL_ERROR) in output
    assert not connection.why_closed


def test_the_connections_window_is_given_back_at_once():
    connection = Connection(Http2Limits(stream_window=200_000, connection_window=65_535))
    connection.receive(READY)
    connection.open(HEAD, b"request")
    connection.receive(peer.frame(peer.HEADERS, peer.END_HEADERS, 1, BLOCKS[1]))
    pieces = [peer.frame(peer.DATA, 0, 1, bytes(16_384))] * 10
    events, _ = heard(connection, [b"".join(pieces)])
    assert not connection.why_closed
    assert all(isinstance(event, MessageArrived) for event in events)


def test_a_peer_that_asks_and_does_not_read_is_given_up():
    connection = begun()
    for _ in range(10_000):
        connection.receive(peer.frame(peer.PING, 0, 0, bytes(8)))
    assert "ENHANCE_YOUR_CALM" in connection.why_closed
    assert len(connection.output(0)) < 70_000


def test_a_connection_whose_stream_numbers_are_used_up_takes_no_more_calls():
    connection = Connection(Http2Limits(first_stream=2**31 - 1))
    connection.receive(READY)
    assert connection.room
    assert connection.open(HEAD, b"request") == 2**31 - 1
    assert connection.is_leaving
    assert not connection.room


def test_calls_that_are_cancelled_before_they_could_be_sent_are_forgotten():
    connection = begun()
    full = connection.open(HEAD, bytes(65_535))
    connection.output(2**20)
    waiting = connection.open(HEAD, b"waits for the connection's window")
    for stream in (full, waiting):
        connection.cancel(stream)
    connection.receive(peer.window(0, 2**20))
    sent = peer.frames_of(connection.output(2**20))
    kinds = [(frame[3], struct.unpack(">I", frame[5:9])[0]) for frame in sent]
    assert kinds == [(peer.HEADERS, waiting), (peer.RESET, full), (peer.RESET, waiting)]


SHARED = (
    (":method", "POST"),
    (":path", "/inference.GRPCInferenceService/ModelStreamInfer"),
    ("te", "trailers"),
    ("user-agent", "a" * 200),
)


def own(number: int) -> list[tuple[str, str]]:
    return [("grpc-timeout", f"{number}m"), ("x-long", "b" * number)]


@pytest.mark.parametrize("table_size", [0, 60, 100, 300, 4096])
def test_every_head_is_read_as_it_was_written(table_size):
    heads, reader = HeadEncoder(SHARED), Decoder()
    reader.max_allowed_table_size = reader.header_table_size = 4096
    for number in range(3):
        assert reader.decode(heads.encode(own(number))) == [*SHARED, *own(number)]
    heads.resize(table_size)
    for number in (0, 1, 2, 126, 127, 128, 300):
        assert reader.decode(heads.encode(own(number))) == [*SHARED, *own(number)]


def test_what_is_shared_shrinks_to_a_byte_a_field():
    heads = HeadEncoder(SHARED)
    first, second, third = (heads.encode([]) for _ in range(3))
    assert len(first) > 150
    assert len(second) == len(SHARED)
    assert third == second


def test_a_block_of_references_means_what_the_table_has_now():
    def read(*fields: tuple[str, str]) -> dict[str, str]:
        block = peers.encode(fields)
        return blocks.push(Kind.HEADERS, END_HEADERS, 1, block)

    peers, blocks = Encoder(), HeaderBlocks()
    peers.header_table_size = blocks._decoder.max_allowed_table_size = 60  # room for one field
    for value in ("a", "a", "a", "b", "b", "a", "b"):
        assert read(("x-name", value)) == {"x-name": value}
