"""Pauses between two reads of a busy connection: to wake up for a single message costs more than to
handle it. Used by link.
"""

from __future__ import annotations

import asyncio

FEW_STREAMS = 4  # whose messages are read as they come
STREAMS_A_SECOND = 16_000.0  # with 16 streams a rest is of a millisecond, with 64 of four
LONGEST_REST_S = 0.004


def rest(transport: asyncio.Transport, *, streams: int) -> None:
    """After a read. What comes meanwhile gathers in the socket."""
    if streams > FEW_STREAMS:
        transport.pause_reading()
        rest_s = min(LONGEST_REST_S, streams / STREAMS_A_SECOND)
        asyncio.get_running_loop().call_later(rest_s, _read_on, transport)


def _read_on(transport: asyncio.Transport) -> None:
    if not transport.is_closing():
        transport.resume_reading()
