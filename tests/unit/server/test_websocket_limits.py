"""websocket_limits: WebSocket messages that do not end or cost too much are cut off."""

from __future__ import annotations

import asyncio
import itertools
import struct
import tracemalloc
from collections.abc import Callable

import pytest
import uvloop
from websockets.frames import OP_BINARY, OP_CLOSE, OP_CONT, OP_PING, OP_PONG, OP_TEXT, Frame

from proxy.api.http.body_reader import BytesInFlight
from proxy.server import connection
from proxy.server.websocket_connection import FREE_FRAMES
from tests.fixtures.own_server import served
from tests.fixtures.stack import HANG_S
from tests.unit.server.talks import UPGRADE, Talk, drips

POLICY_VIOLATION, PROTOCOL_ERROR, TRY_AGAIN_LATER = 1008, 1002, 1013


async def app(scope, receive, send) -> None:
    """Sends the length of each message back."""
    await receive()
    await send({"type": "websocket.accept"})
    while (event := await receive())["type"] == "websocket.receive":
        data = event.get("bytes") or event.get("text") or ""
        await send({"type": "websocket.send", "text": str(len(data))})


def frame(opcode: int, data: bytes = b"", *, fin: bool = True) -> bytes:
    return Frame(opcode, data, fin=fin).serialize(mask=True)


async def talked(talk: Talk, **limits: object) -> bytes:
    async with served(app, **limits) as address:
        reader, writer = await asyncio.open_connection(*address)
        try:
            writer.write(UPGRADE)
            await reader.readuntil(b"\r\n\r\n")
            return await asyncio.wait_for(talk(reader, writer), HANG_S)
        finally:
            writer.close()


def close_code(raw: bytes) -> int:
    """Of the close frame at the end."""
    found = raw.rindex(b"\x88")
    return int(struct.unpack("!H", raw[found + 2 : found + 4])[0])


@pytest.mark.parametrize(
    ("start", "drop"),
    [
        (frame(OP_TEXT, b"{", fin=False), frame(OP_CONT, fin=False)),
        (frame(OP_TEXT, b"{", fin=False), frame(OP_PING)),
        (frame(OP_TEXT, b"x" * 1000)[:20], b"x"),
        (frame(OP_BINARY, b"x" * 1000)[:1], b""),
    ],
    ids=["empty fragments", "pings", "bytes", "nothing"],
)
def test_a_message_that_does_not_end_has_a_deadline(start, drop):
    raw = uvloop.run(talked(drips(start, drop), body_timeout_s=0.5))
    assert close_code(raw) == POLICY_VIOLATION


def test_an_idle_socket_and_messages_with_pauses_are_no_slow_senders():
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        await asyncio.sleep(1)
        for part in (frame(OP_TEXT, b"a" * 100, fin=False), frame(OP_CONT, b"b" * 100)):
            writer.write(part)
            await asyncio.sleep(0.1)
        await asyncio.sleep(1)
        return await reader.readuntil(b"200")

    assert uvloop.run(talked(talk, body_timeout_s=0.5)).endswith(b"200")


@pytest.mark.parametrize(
    ("start", "one"),
    [
        (frame(OP_TEXT, b"{", fin=False), frame(OP_CONT, fin=False)),
        (frame(OP_TEXT, b"{", fin=False), frame(OP_CONT, b"x", fin=False)),
        (b"", frame(OP_PING, b"x" * 125)),
        (b"", frame(OP_PONG)),
        (b"", frame(OP_TEXT, b"x")),
    ],
    ids=["empty fragments", "tiny fragments", "pings", "pongs", "tiny messages"],
)
def test_a_flood_of_frames_ends_the_socket_amid_the_read(start, one):
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        writer.write(start + one * (FREE_FRAMES + 1))
        return await reader.read()

    assert close_code(uvloop.run(talked(talk))) == PROTOCOL_ERROR


def test_a_large_message_in_ordinary_fragments_is_no_flood():
    first = frame(OP_BINARY, b"x" * 1024, fin=False)
    fragments = first + frame(OP_CONT, b"x" * 1024, fin=False) * 1000 + frame(OP_CONT)

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        writer.write(fragments)
        return await reader.readuntil(b"%d" % (1001 * 1024))

    assert uvloop.run(talked(talk))


def test_bytes_that_wait_for_a_turn_keep_their_order(monkeypatch):
    """Each message takes the whole turn, and the sockets take turns."""
    monkeypatch.setattr(connection, "TURN_BYTES", 1)
    sizes = [1000 + at for at in range(20)]

    async def talk(address: tuple[str, int]) -> list[bytes]:
        reader, writer = await asyncio.open_connection(*address)
        writer.write(UPGRADE + b"".join(frame(OP_TEXT, b"x" * size) for size in sizes))
        await reader.readuntil(b"\r\n\r\n")
        answers = await reader.readexactly(len(sizes) * len(b"\x81\x041000"))
        writer.close()
        return answers.split(b"\x81\x04")[1:]

    async def talks() -> list[list[bytes]]:
        async with served(app) as address:
            return await asyncio.wait_for(
                asyncio.gather(*(talk(address) for _ in range(10))), HANG_S
            )

    assert uvloop.run(talks()) == [[b"%d" % size for size in sizes]] * 10


def test_messages_of_all_sockets_share_one_limit_and_leave_nothing_behind():
    flight = BytesInFlight(100_000)
    half = frame(OP_BINARY, b"x" * 80_000)[:60_000]

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        writer.write(half)
        await until(lambda: flight.bytes > 50_000)
        accepted, other = await asyncio.open_connection(*writer.get_extra_info("peername"))
        other.write(UPGRADE)
        await accepted.readuntil(b"\r\n\r\n")
        other.write(half)
        raw = await reader.read()  # the older one makes room
        other.close()
        await until(lambda: flight.bytes == 0)
        return raw

    assert close_code(uvloop.run(talked(talk, in_flight=flight))) == TRY_AGAIN_LATER


def test_a_message_gives_its_room_back_once_the_application_has_it():
    flight = BytesInFlight(100_000)

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        for _ in range(5):
            writer.write(frame(OP_BINARY, b"x" * 60_000))
            await reader.readuntil(b"60000")
        assert flight.bytes == 0
        return b""

    uvloop.run(talked(talk, in_flight=flight))


async def forgetful(scope, receive, send) -> None:
    """As `app`, but keeps no message while it waits for the next one."""

    async def size() -> int | None:
        event = await receive()
        return len(event["bytes"]) if event["type"] == "websocket.receive" else None

    await receive()
    await send({"type": "websocket.accept"})
    while (found := await size()) is not None:
        await send({"type": "websocket.send", "text": str(found)})


def test_an_idle_socket_keeps_nothing_of_its_last_message():
    sockets, message = 10, frame(OP_BINARY, b"x" * 1_000_000)

    async def talks() -> int:
        async with served(forgetful, most=sockets) as address:
            writers = []
            before, _ = tracemalloc.get_traced_memory()
            for _ in range(sockets):
                reader, writer = await asyncio.open_connection(*address)
                writers.append(writer)
                writer.write(UPGRADE)
                await reader.readuntil(b"\r\n\r\n")
                writer.write(message)
                await asyncio.wait_for(reader.readuntil(b"1000000"), HANG_S)
            after, _ = tracemalloc.get_traced_memory()
            for writer in writers:
                writer.close()
            return after - before

    tracemalloc.start()
    try:
        assert uvloop.run(talks()) < sockets * 500_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "handshake",
    [
        UPGRADE.replace(b"GET", b"POST"),
        UPGRADE.replace(b"Version: 13", b"Version: 12"),
        UPGRADE.replace(b"Host: a", b"Host: a\r\nX: " + b"x" * 10_000),
    ],
    ids=["method", "version", "long field"],
)
def test_a_handshake_that_is_malformed_is_refused(handshake):
    async def talk() -> bytes:
        async with served(app) as address:
            reader, writer = await asyncio.open_connection(*address)
            writer.write(handshake)
            raw = await asyncio.wait_for(reader.read(), HANG_S)
            writer.close()
            return raw

    assert uvloop.run(talk()).startswith(b"HTTP/1.1 400 ")


def test_a_frame_that_comes_with_the_handshake_waits_for_it():
    async def talk() -> bytes:
        async with served(app) as address:
            reader, writer = await asyncio.open_connection(*address)
            writer.write(UPGRADE + frame(OP_TEXT, b"abc"))
            raw = await asyncio.wait_for(reader.readuntil(b"\x81\x013"), HANG_S)
            writer.close()
            return raw

    assert uvloop.run(talk()).startswith(b"HTTP/1.1 101 ")


def test_an_application_may_deny_and_close():
    async def denies(scope, receive, send) -> None:
        if scope["path"] == "/status":
            headers = [(b"content-type", b"application/json"), (b"x-a", b"b")]
            await send({"type": "websocket.http.response.start", "status": 401, "headers": headers})
            await send({"type": "websocket.http.response.body", "body": b"{}"})
        elif scope["path"] == "/fails":
            raise RuntimeError("secret")
        else:
            if scope["path"] == "/closes":
                await send({"type": "websocket.accept", "subprotocol": "a"})
            await send({"type": "websocket.close", "code": 1012, "reason": "bye"})

    async def talk(path: bytes) -> bytes:
        async with served(denies) as address:
            reader, writer = await asyncio.open_connection(*address)
            writer.write(UPGRADE.replace(b"/", path, 1))
            if path == b"/closes":
                await reader.readuntil(b"bye")
                writer.write(frame(OP_CLOSE, struct.pack("!H", 1012)))
            raw = await asyncio.wait_for(reader.read(), HANG_S)
            writer.close()
            return raw

    denied = uvloop.run(talk(b"/status"))
    assert denied.startswith(b"HTTP/1.1 401 ")
    assert b"\r\nx-a: b\r\n" in denied
    assert denied.endswith(b"\r\n\r\n{}")
    assert uvloop.run(talk(b"/")).startswith(b"HTTP/1.1 403 ")
    assert uvloop.run(talk(b"/fails")).startswith(b"HTTP/1.1 500 ")
    assert uvloop.run(talk(b"/closes")) == b""


async def until(condition: Callable[[], bool]) -> None:
    for _ in itertools.count():
        if condition():
            return
        await asyncio.sleep(0.01)
