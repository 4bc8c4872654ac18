"""lingering: an answer that ends the connection reaches a client that is still sending."""

from __future__ import annotations

import asyncio

import pytest
import uvloop

from proxy.server.connection import LINGER_BYTES
from tests.fixtures.own_server import served

PIECE = b"x" * 100_000
ENDLESS = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000000000\r\n\r\n"
NO_HTTP = b"\0" * 10
BUFFERS = 20_000_000  # of both kernels and event loops, at most


async def refusing(scope, receive, send) -> None:
    headers = [(b"connection", b"close"), (b"content-length", b"8")]
    await send({"type": "http.response.start", "status": 413, "headers": headers})
    await send({"type": "http.response.body", "body": b"too much"})


async def sent_and_read(start: bytes, pieces: int) -> tuple[int, bytes]:
    """How much was sent before the connection broke or all was; then what is there to be read."""
    async with served(refusing) as address:
        reader, writer = await asyncio.open_connection(*address)
        sent = 0
        try:
            writer.write(start)
            while sent < pieces * len(PIECE):
                writer.write(PIECE)
                await writer.drain()
                sent += len(PIECE)
            return sent, await reader.read()
        except ConnectionError:
            return sent, b""
        finally:
            writer.close()


@pytest.mark.parametrize(("start", "status"), [(ENDLESS, b"413"), (NO_HTTP, b"400")])
def test_a_client_that_sends_before_it_reads_gets_the_answer(start, status):
    sent, raw = uvloop.run(sent_and_read(start, 100))
    assert sent == 100 * len(PIECE)
    assert raw.startswith(b"HTTP/1.1 " + status)
    assert raw.count(b"HTTP/1.1") == 1


@pytest.mark.parametrize("start", [ENDLESS, NO_HTTP])
def test_one_that_sends_without_end_is_cut_off(start):
    sent, _ = uvloop.run(sent_and_read(start, 10_000))
    assert sent < LINGER_BYTES + BUFFERS
