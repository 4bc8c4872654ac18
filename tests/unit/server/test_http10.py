"""http10: a stream to HTTP/1.0 has no chunks, and ends with the connection."""

from __future__ import annotations

import asyncio

import pytest
import uvloop

from tests.fixtures.own_server import served

PIECES = [b"data: 1\n\n", b"", b"data: 2\n\n"]


async def streaming(scope, receive, send) -> None:
    headers = [] if scope["path"] == "/stream" else [(b"Content-Length", b"18")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    for piece in PIECES:
        await send({"type": "http.response.body", "body": piece, "more_body": True})
    await send({"type": "http.response.body"})


async def answer(request: bytes) -> bytes:
    """All that comes until the server closes the connection, or sends nothing more."""
    async with served(streaming) as address:
        reader, writer = await asyncio.open_connection(*address)
        writer.write(request)
        came = b""
        try:
            while piece := await asyncio.wait_for(reader.read(65_536), 1):
                came += piece
            return came + b"<closed>"
        except asyncio.TimeoutError:
            return came
        finally:
            writer.close()


@pytest.mark.parametrize("more", [b"", b"Connection: keep-alive\r\n"])
def test_a_stream_has_no_chunks_and_ends_with_the_connection(more):
    raw = uvloop.run(answer(b"GET /stream HTTP/1.0\r\n" + more + b"\r\n"))
    head, _, body = raw.partition(b"\r\n\r\n")
    assert body == b"".join(PIECES) + b"<closed>"
    assert b"transfer-encoding" not in head.lower()
    assert b"connection: close" in head


def test_an_answer_with_a_length_keeps_it():
    head, _, body = uvloop.run(answer(b"GET /whole HTTP/1.0\r\n\r\n")).partition(b"\r\n\r\n")
    assert body == b"".join(PIECES) + b"<closed>"
    assert b"content-length: 18" in head


def test_to_others_it_is_chunked():
    raw = uvloop.run(answer(b"GET /stream HTTP/1.1\r\nHost: a\r\n\r\n"))
    head, _, body = raw.partition(b"\r\n\r\n")
    assert b"transfer-encoding: chunked" in head
    assert body == b"9\r\ndata: 1\n\n\r\n9\r\ndata: 2\n\n\r\n0\r\n\r\n"
