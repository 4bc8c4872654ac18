"""Clients of our own server, which say what a test has them say."""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
from collections.abc import Awaitable, Callable

from proxy.server.http_connection import MOST_HEAD_BYTES
from tests.fixtures.own_server import served
from tests.fixtures.stack import HANG_S

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
