"""slow_senders: requests that do not end are refused, in time and in memory."""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest
import uvloop

from tests.fixtures.own_server import served
from tests.fixtures.stack import HANG_S
from triton_openai.proxy.http_server.parsing_limits import MOST_FIELDS, MOST_URL_BYTES
from triton_openai.proxy.http_server.slow_senders import MOST_HEAD_BYTES

TIMEOUT_S = 0.3
MOST = 2  # connections
HEAD = b"POST / HTTP/1.1\r\nHost: a\r\n"
GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
UPGRADE = (
    b"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: " + base64.b64encode(b"k" * 16) + b"\r\n\r\n"
)
H2C = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n"
Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[bytes]]


async def app(scope, receive, send) -> None:
    """Reads all, thinks for longer than a sender may, and answers."""
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.accept"})
        await asyncio.sleep(2 * TIMEOUT_S)
        await send({"type": "websocket.send", "text": "still here"})
        return
    body, message = b"", {"more_body": True}
    while message.get("more_body") and scope["path"] != "/at-once":
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        body += message["body"]
    await asyncio.sleep(0 if scope["path"] == "/at-once" else 2 * TIMEOUT_S)
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"answer to " + body})


async def talked(talk: Talk, timeout_s: float = TIMEOUT_S, body_timeout_s: float = 60) -> bytes:
    """What a client of its own server ends up with, which waits so long for senders."""
    async with served(
        app, sender_timeout_s=timeout_s, body_timeout_s=body_timeout_s, most=MOST
    ) as address:
        reader, writer = await asyncio.open_connection(*address)
        try:
            return await asyncio.wait_for(talk(reader, writer), HANG_S)
        finally:
            writer.close()


def says(*pieces: bytes, pause_s: float = 0) -> Talk:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        for piece in pieces:
            writer.write(piece)
            await asyncio.sleep(pause_s)
        return await reader.read()

    return talk


def goes_on(start: bytes, more: bytes) -> Talk:
    """Without end, until it is answered or cut off."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        writer.write(start)
        for sent in itertools.count(len(more), len(more)):
            assert sent < 3 * MOST_HEAD_BYTES, "nobody stops it"
            writer.write(more)
            try:
                return await asyncio.wait_for(reader.readuntil(b"}}"), 0.01)
            except asyncio.TimeoutError:
                continue

    return talk


def refusal(raw: bytes) -> tuple[int, str]:
    """Status and code of the last answer."""
    head, _, body = raw.rpartition(b"\r\n\r\n")
    fields = head[head.rindex(b"HTTP/1.1") :].lower().split(b"\r\n")
    assert b"connection: close" in fields
    assert b"content-type: application/json" in fields
    assert b"content-length: %d" % len(body) in fields
    error = json.loads(body)["error"]
    assert error["type"] == "invalid_request_error"
    return int(fields[0].split()[1]), error["code"]


@pytest.mark.parametrize(
    "begun",
    [
        b"POST",
        HEAD,
        HEAD + b"Content-Length: 10\r\n\r\nhalf",
        CHUNKED + b"4\r\nha",
        GET + b"GET / HT",
    ],
)
def test_a_request_that_does_not_go_on_is_refused(begun):
    assert refusal(uvloop.run(talked(says(begun)))) == (408, "request_timeout")


def drips(start: bytes, drop: bytes) -> Talk:
    """One drop after the other until the server answers or closes; never a pause."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        writer.write(start)
        answer = asyncio.ensure_future(reader.read())
        while not answer.done():
            writer.write(drop)
            await asyncio.wait((answer,), timeout=0.05)
        return answer.result()

    return talk


@pytest.mark.parametrize(
    ("start", "drop"),
    [
        (HEAD + b"Content-Length: 1000\r\n\r\n", b"x"),
        (CHUNKED, b"1\r\nx\r\n"),
        (CHUNKED, b"1;extension=1\r\nx\r\n"),
        (CHUNKED + b"0\r\n", b"X: x\r\n"),
    ],
    ids=["length", "chunks", "extensions", "trailers"],
)
def test_a_body_that_trickles_without_a_pause_has_a_deadline(start, drop):
    raw = uvloop.run(talked(drips(start, drop), timeout_s=60, body_timeout_s=0.5))
    assert refusal(raw) == (408, "request_timeout")
    assert b"did not end within 0.5 s" in raw


def test_a_body_that_trickles_after_its_answer_has_a_deadline():
    early = CHUNKED.replace(b"POST /", b"POST /at-once")
    drop = b"1\r\nx\r\n"
    raw = uvloop.run(talked(drips(early, drop), timeout_s=60, body_timeout_s=0.5))
    assert raw.count(b"HTTP/1.1 200") == 1


def test_a_long_answer_is_no_slow_body():
    whole = HEAD + b"Connection: close\r\nContent-Length: 4\r\n\r\nbody"
    raw = uvloop.run(talked(says(whole), timeout_s=60, body_timeout_s=TIMEOUT_S))
    assert raw.startswith(b"HTTP/1.1 200")


def test_empty_lines_keep_no_connection_open():
    raw = uvloop.run(talked(says(GET, b"\r\n", pause_s=4 * TIMEOUT_S)))
    assert raw.startswith(b"HTTP/1.1 200")
    assert refusal(raw) == (408, "request_timeout")


def test_a_connection_that_asks_for_nothing_is_closed():
    assert uvloop.run(talked(says())) == b""


def test_a_body_in_slow_pieces_and_a_slow_answer_are_waited_for():
    head = HEAD + b"Connection: close\r\nContent-Length: 4\r\n\r\n"
    pieces = (head, b"s", b"l", b"o", b"w")
    answer = uvloop.run(talked(says(*pieces, pause_s=0.3), timeout_s=1))
    assert answer.startswith(b"HTTP/1.1 200")


def test_a_websocket_has_all_time():
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        writer.write(UPGRADE)
        return await reader.readuntil(b"still here")

    assert b" 101 " in uvloop.run(talked(talk))


@pytest.mark.parametrize(
    ("start", "more"),
    [
        (HEAD + b"X: ", b"x" * 16_384),
        (HEAD, b"X: x\r\n" * 3000),
        (CHUNKED + b"1;", b"x" * 16_384),
        (CHUNKED + b"0\r\nX: ", b"x" * 16_384),
        (CHUNKED + b"0\r\n", b"X: x\r\n" * 3000),
    ],
    ids=["value", "fields", "extension", "trailer", "trailers"],
)
def test_what_has_no_end_is_refused_before_it_fills_the_memory(start, more):
    raw = uvloop.run(talked(goes_on(start, more), timeout_s=60))
    assert refusal(raw) == (431, "header_fields_too_large")


@pytest.mark.parametrize(
    "nonsense", [b"\x16\x03\x01\x02\x00", b"GET / HTTP/9.9\r\n\r\n", HEAD + b"\0\r\n"]
)
def test_what_is_no_http_is_refused_like_everything_else(nonsense):
    assert refusal(uvloop.run(talked(says(nonsense)))) == (400, "invalid_http")


@pytest.mark.parametrize("is_chunked", [False, True])
@pytest.mark.parametrize("pause_s", [0, 0.05])
def test_an_upgrade_to_anything_else_is_ignored_and_the_body_kept(is_chunked, pause_s):
    """As Java's own client asks for HTTP/2."""
    if is_chunked:
        pieces = [HEAD + H2C + b"Transfer-Encoding: chunked\r\n\r\n", b"4\r\nbody\r\n0\r\n\r\n"]
    else:
        pieces = [HEAD + H2C + b"Content-Length: 4\r\n\r\n", b"body"]
    pieces.append(GET.replace(b"Host: a", H2C + b"Host: a\r\nConnection: close"))
    sent = pieces if pause_s else [b"".join(pieces)]
    raw = uvloop.run(talked(says(*sent, pause_s=pause_s), timeout_s=60))
    assert raw.count(b"HTTP/1.1 200") == 2
    assert raw.count(b"answer to ") == 2
    assert b"answer to body" in raw


def test_a_websocket_amid_an_answer_ends_the_connection():
    """The answer would go on for a client that has left."""
    assert uvloop.run(talked(says(GET, UPGRADE, pause_s=0.05))) == b""


def test_what_is_wrong_behind_a_request_does_not_stand_in_its_answer():
    assert uvloop.run(talked(says(GET, b"\0", pause_s=0.05))) == b""


def test_a_body_that_does_not_go_on_after_its_answer_is_not_answered_again():
    early = HEAD.replace(b"POST /", b"POST /at-once") + b"Content-Length: 10\r\n\r\n"
    raw = uvloop.run(talked(says(early, b"half", pause_s=0.05)))
    assert raw.count(b"HTTP/1.1") == 1


def test_one_connection_too_many_is_closed_and_room_is_made_by_those_that_leave():
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        address = writer.get_extra_info("peername")
        others = [await asyncio.open_connection(*address) for _ in range(MOST)]
        assert await others[-1][0].read() == b""
        for _, other in others:
            other.close()
        await asyncio.sleep(0.05)
        last, asking = await asyncio.open_connection(*address)
        asking.write(GET.replace(b"/", b"/at-once", 1))
        raw = await last.readuntil(b"\r\n")
        asking.close()
        return raw

    assert uvloop.run(talked(talk, timeout_s=60)) == b"HTTP/1.1 200 OK\r\n"


@pytest.mark.parametrize(
    ("sent", "answer"),
    [
        (b"GET /" + b"x" * MOST_URL_BYTES + b" HTTP/1.1\r\n\r\n", (414, "uri_too_long")),
        (
            HEAD + b"X: x\r\n" * MOST_FIELDS + b"\r\n",
            (431, "header_fields_too_large"),
        ),
        (CHUNKED + b"1\r\nx\r\n" * 5_000, (400, "body_in_small_pieces")),
    ],
    ids=["url", "fields", "chunks"],
)
def test_what_costs_too_much_to_parse_is_refused_amid_the_read(sent, answer):
    assert refusal(uvloop.run(talked(says(sent), timeout_s=60))) == answer


def test_a_flood_of_pipelined_requests_is_cut_off():
    """The server has closed the connection although it had not read all of them."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        writer.write(GET * 100_000)
        raw = b""
        with suppress(ConnectionResetError):
            while piece := await reader.read(65_536):
                raw += piece
        return raw

    assert uvloop.run(talked(talk, timeout_s=60)).count(b"HTTP/1.1") <= 1


def test_some_pipelined_requests_are_answered():
    last = GET.replace(b"Host: a", b"Host: a\r\nConnection: close")
    raw = uvloop.run(talked(says(GET.replace(b"/", b"/at-once", 1) * 20 + last), timeout_s=60))
    assert raw.count(b"HTTP/1.1 200") == 21


def test_a_body_of_ordinary_chunks_is_no_flood():
    chunks = (b"%x\r\n" % 4096 + b"x" * 4096 + b"\r\n") * 400 + b"0\r\n\r\n"
    head = CHUNKED.replace(b"Host: a", b"Host: a\r\nConnection: close")
    raw = uvloop.run(talked(says(head + chunks), timeout_s=60))
    assert raw.count(b"x" * 4096) == 400


SMUGGLED = {
    "length and chunks": HEAD + b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n",
    "chunks and length": HEAD + b"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n",
    "two lengths": HEAD + b"Content-Length: 4\r\nContent-Length: 5\r\n\r\n",
    "the same length twice": HEAD + b"Content-Length: 4\r\nContent-Length: 4\r\n\r\n",
    "a signed length": HEAD + b"Content-Length: +4\r\n\r\n",
    "a length list": HEAD + b"Content-Length: 4, 4\r\n\r\n",
    "a length beyond 64 bits": HEAD + b"Content-Length: 18446744073709551620\r\n\r\n",
    "chunked is not last": HEAD + b"Transfer-Encoding: chunked, identity\r\n\r\n",
    "an unknown coding": HEAD + b"Transfer-Encoding: xchunked\r\n\r\n",
    "a folded field": HEAD + b"X: a\r\n b: c\r\n\r\n",
    "a blank before the colon": HEAD + b"Content-Length : 4\r\n\r\n",
    "bare line feeds": b"POST / HTTP/1.1\nHost: a\nContent-Length: 4\n\nbody",
    "a bare carriage return": HEAD + b"X: a\rContent-Length: 4\r\n\r\n",
    "a chunk size beyond 64 bits": CHUNKED + b"10000000000000004\r\nbody\r\n0\r\n\r\n",
    "a signed chunk size": CHUNKED + b"+4\r\nbody\r\n0\r\n\r\n",
    "a chunk size in C": CHUNKED + b"0x4\r\nbody\r\n0\r\n\r\n",
    "a chunk longer than its size": CHUNKED + b"2\r\nbody\r\n0\r\n\r\n",
    "a line feed behind a chunk size": CHUNKED + b"4\nbody\r\n0\r\n\r\n",
}


@pytest.mark.parametrize("head", SMUGGLED.values(), ids=SMUGGLED)
def test_a_request_that_two_servers_could_read_differently_is_refused(head):
    raw = uvloop.run(talked(says(head + b"body" + GET), timeout_s=0.5))
    assert refusal(raw) == (400, "invalid_http")
