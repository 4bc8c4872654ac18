"""slow_senders: requests that do not end are refused, in time and in memory."""

from __future__ import annotations

import asyncio

import pytest
import uvloop

from tests.unit.server.talks import (
    CHUNKED,
    GET,
    H2C,
    HEAD,
    MOST,
    TIMEOUT_S,
    UPGRADE,
    drips,
    refusal,
    says,
    talked,
)


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


def test_a_body_that_keeps_coming_has_time_for_its_bytes():
    head = HEAD + b"Connection: close\r\nContent-Length: 200000\r\n\r\n"
    pieces = (head, *[b"x" * 50_000] * 4)
    raw = uvloop.run(talked(says(*pieces, pause_s=0.25), timeout_s=60, body_timeout_s=0.5))
    assert raw.startswith(b"HTTP/1.1 200")


def test_a_body_that_trickles_after_its_answer_has_a_deadline():
    early = CHUNKED.replace(b"POST /", b"POST /at-once")
    drop = b"1\r\nx\r\n"
    raw = uvloop.run(talked(drips(early, drop), timeout_s=60, body_timeout_s=0.5))
    assert raw.count(b"HTTP/1.1 200") == 1


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
