"""link: what it writes, and when."""

from __future__ import annotations

import asyncio
from unittest.mock import Mock

import pytest

from proxy.triton.http2.connection import Connection, Http2Limits
from proxy.triton.streams.link import KeepaliveTimes, LeanStream, Link

pytestmark = pytest.mark.anyio


class Written(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.writes: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.writes.append(data)

    def is_closing(self) -> bool:
        return False


@pytest.mark.parametrize("count", [1, 4])
async def test_streams_that_start_in_one_turn_of_the_event_loop_are_one_write(count):
    transport, owner = Written(), Mock()
    link = Link(Connection(Http2Limits(max_message=99), ()), KeepaliveTimes(), owner)
    link.connection_made(transport)
    transport.writes.clear()
    for number in range(count):
        link.start(LeanStream(owner, b"request %d" % number, 9.0))
    assert transport.writes == []
    await asyncio.sleep(0)
    (written,) = transport.writes
    assert [b"request %d" % number in written for number in range(count)] == [True] * count
    link.connection_lost(None)
