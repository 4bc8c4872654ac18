"""connection: the writes of one turn of the loop become one, and none is lost at the end."""

from __future__ import annotations

import asyncio
import math

from uvicorn.server import ServerState

from proxy.server.connection import MOST_JOINED_BYTES, Connection
from tests.fixtures.own_server import bounds
from tests.fixtures.stack import HANG_S


class Wire(asyncio.Transport):
    """Never gets rid of what is written to it."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[bytes | str] = []
        self.aborted = asyncio.Event()

    def write(self, data: bytes) -> None:
        self.calls.append(data)

    def close(self) -> None:
        self.calls.append("close")

    def abort(self) -> None:
        self.calls.append("abort")
        self.aborted.set()

    def is_closing(self) -> bool:
        return "close" in self.calls or "abort" in self.calls

    def get_write_buffer_size(self) -> int:
        return 100


class Quiet(Connection):
    def late_at(self) -> float:
        return math.inf


def calls(act, *, patience_s: float = 60) -> list[bytes | str]:
    """What reaches the wire when `act(connection, wire)` runs in a loop."""

    async def run() -> list[bytes | str]:
        wire = Wire()
        connection = Quiet(bounds(reader_timeout_s=patience_s), None, ServerState())
        connection.connection_made(wire)
        await act(connection, wire)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return wire.calls

    return asyncio.run(run())


def written(*parts: bytes, then: str | None = None):
    async def act(connection, wire):
        for part in parts:
            connection.write(part)
        assert not wire.calls
        if then is not None:
            getattr(connection, then)()

    return act


def test_the_writes_of_a_turn_become_one():
    assert calls(written(b"head", b"first", b"second")) == [b"headfirstsecond"]
    assert calls(written(b"alone")) == [b"alone"]


def test_each_turn_has_its_own():
    async def act(connection, wire):
        for part in (b"a", b"b"):
            connection.write(part)
            await asyncio.sleep(0)

    assert calls(act) == [b"a", b"b"]


def test_what_ends_in_order_is_sent_first():
    assert calls(written(b"a", b"b", then="close")) == [b"ab", "close"]
    assert calls(written(b"a", b"b", then="eof_received")) == [b"ab"]


def test_much_does_not_wait():
    half = bytes(MOST_JOINED_BYTES // 2)

    async def act(connection, wire):
        connection.write(half)
        connection.write(half)
        assert not wire.calls
        connection.write(b"x")
        assert wire.calls == [half + half + b"x"]
        connection.write(b"y")

    assert calls(act)[1:] == [b"y"]


def test_a_closed_connection_whose_client_does_not_read_its_end_is_aborted():
    async def act(connection, wire):
        connection.write(b"the end")
        connection.close()
        await asyncio.wait_for(wire.aborted.wait(), HANG_S)

    assert calls(act, patience_s=0.1) == [b"the end", "close", "abort"]
