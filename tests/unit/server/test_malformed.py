"""incoming: what is no HTTP, has no end or is meant to mislead is refused amid the read."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest
import uvloop

from proxy.server.http_connection import MOST_FIELDS, MOST_URL_BYTES
from tests.unit.server.talks import (
    CHUNKED,
    GET,
    HEAD,
    goes_on,
    refusal,
    says,
    talked,
)


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
