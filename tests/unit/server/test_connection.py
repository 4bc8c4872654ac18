"""connection: the writes of one turn of the loop become one, and none is lost at the end."""

from __future__ import annotations

import asyncio
import math

import pytest
from uvicorn.server import ServerState

from proxy.server.connection import Connection
from tests.fixtures.own_server import bounds
from tests.fixtures.stack import HANG_S

pytestmark = pytest.mark.anyio


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


async def test_a_closed_connection_whose_client_does_not_read_its_end_is_aborted():
    wire = Wire()
    connection = Quiet(bounds(reader_timeout_s=0.1), None, ServerState())
    connection.connection_made(wire)
    for part in (b"the ", b"end"):
        connection.write(part)
    assert not wire.calls, "the writes of one turn of the loop become one"
    connection.close()
    await asyncio.wait_for(wire.aborted.wait(), HANG_S)
    assert wire.calls == [b"the end", "close", "abort"]
