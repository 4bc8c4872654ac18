"""slow_readers: who does not read is cut off, who reads is not; over HTTP and WebSockets."""

from __future__ import annotations

import asyncio
import socket

import pytest

from tests.fixtures.own_server import served
from tests.unit.server.talks import UPGRADE

PATIENCE_S = 0.3
PART = b"x" * 65_536
PARTS = 200  # more than the kernel's buffers take
GET = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"


async def flood(scope, receive, send) -> None:
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.accept"})
        for _ in range(PARTS):
            await send({"type": "websocket.send", "bytes": PART})
        await receive()
        return
    await send({"type": "http.response.start", "status": 200, "headers": []})
    for _ in range(PARTS):
        await send({"type": "http.response.body", "body": PART, "more_body": True})
    await send({"type": "http.response.body", "body": b"end"})


async def read(request: bytes, pause_s: float, *, more: bytes = b"") -> int:
    """Bytes that came to a client that begins to read after a pause, and leaves with all parts.

    `more` it says in the midst of the pause.
    """
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    async with served(flood, reader_timeout_s=PATIENCE_S, most=1) as address:
        client.connect(address)
        client.sendall(request)
        await asyncio.sleep(pause_s / 2)
        client.sendall(more)
        await asyncio.sleep(pause_s / 2)
        reader, writer = await asyncio.open_connection(sock=client)
        try:
            return len(await reader.readexactly(PARTS * len(PART)))
        except asyncio.IncompleteReadError as error:
            return len(error.partial)
        except ConnectionError:
            return 0
        finally:
            writer.close()


@pytest.mark.parametrize("request_bytes", [GET, UPGRADE], ids=["http", "websocket"])
def test_a_client_that_does_not_read_is_cut_off(request_bytes):
    assert asyncio.run(read(request_bytes, pause_s=4 * PATIENCE_S)) < PARTS * len(PART)


def test_a_client_that_does_not_read_gains_nothing_by_asking_for_more():
    again = GET.replace(b"Connection: close\r\n", b"")
    got = asyncio.run(read(again, pause_s=1.5 * PATIENCE_S, more=b"GET"))
    assert got < PARTS * len(PART)


@pytest.mark.parametrize("request_bytes", [GET, UPGRADE], ids=["http", "websocket"])
def test_a_client_that_pauses_gets_everything(request_bytes):
    assert asyncio.run(read(request_bytes, pause_s=PATIENCE_S / 6)) >= PARTS * len(PART)
