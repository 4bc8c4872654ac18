"""read_pauses: how long a connection is left alone after a read, by the number of its streams."""

from __future__ import annotations

import asyncio

import pytest

from proxy.triton.streams.link import (
    FEW_STREAMS,
    LONGEST_PAUSE_S,
    STREAMS_PER_SECOND,
    pause_reading,
)
from tests.doubles import clock


class Transport(asyncio.Transport):
    """Says when it is not read, on the loop's clock. A closed one must not be asked to read."""

    def __init__(self) -> None:
        super().__init__()
        self.paused_at: float | None = None
        self.read_again_at: float | None = None
        self.is_closed = False

    def is_closing(self) -> bool:
        return self.is_closed

    def pause_reading(self) -> None:
        self.paused_at = asyncio.get_running_loop().time()

    def resume_reading(self) -> None:
        assert not self.is_closed
        self.read_again_at = asyncio.get_running_loop().time()


async def after_a_read(streams: int, *, closes: bool = False) -> Transport:
    transport = Transport()
    pause_reading(transport, streams=streams)
    transport.is_closed = closes
    await asyncio.sleep(10 * LONGEST_PAUSE_S)
    return transport


@pytest.mark.parametrize(
    ("streams", "pause_s"),
    [
        (FEW_STREAMS + 1, (FEW_STREAMS + 1) / STREAMS_PER_SECOND),
        (16, 16 / STREAMS_PER_SECOND),
        (100_000, LONGEST_PAUSE_S),
    ],
)
def test_many_streams_are_left_alone_for_a_while_and_read_again(streams, pause_s):
    found = clock.run(after_a_read(streams))
    assert found.paused_at == 0
    assert found.read_again_at == pytest.approx(pause_s)


@pytest.mark.parametrize("streams", [0, 1, FEW_STREAMS])
def test_few_streams_are_read_as_they_come(streams):
    found = clock.run(after_a_read(streams))
    assert (found.paused_at, found.read_again_at) == (None, None)
