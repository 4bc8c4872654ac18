"""Pauses between two reads of a busy connection. Called by `link`.

Waking up for a single message costs more than handling it; in a pause messages gather in the
socket.
"""

from __future__ import annotations

import asyncio

FEW_STREAMS = 4  # with so many or fewer, there are no pauses
STREAMS_PER_SECOND = 16_000.0  # 1 ms of pause with 16 streams, 4 ms with 64
LONGEST_PAUSE_S = 0.004


def pause_reading(transport: asyncio.Transport, *, streams: int) -> None:
    """Called after a read."""
    if streams > FEW_STREAMS:
        transport.pause_reading()
        pause_s = min(LONGEST_PAUSE_S, streams / STREAMS_PER_SECOND)
        asyncio.get_running_loop().call_later(pause_s, _resume_reading, transport)


def _resume_reading(transport: asyncio.Transport) -> None:
    if not transport.is_closing():
        transport.resume_reading()
