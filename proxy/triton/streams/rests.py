"""Pauses between two reads of a busy connection: to wake up for a single message costs more than to
handle it. Used by link.
"""

from __future__ import annotations

import asyncio

FEW_STREAMS = 4  # whose messages are read as they come
REST_S = 0.002  # between two reads for more of them


def rest(transport: asyncio.Transport, *, streams: int) -> None:
    """After a read. What comes meanwhile gathers in the socket."""
    if streams > FEW_STREAMS:
        transport.pause_reading()
        asyncio.get_running_loop().call_later(REST_S, _read_on, transport)


def _read_on(transport: asyncio.Transport) -> None:
    if not transport.is_closing():
        transport.resume_reading()
