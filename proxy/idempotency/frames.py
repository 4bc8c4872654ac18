"""What workers say to each other about a running answer, over a Unix socket. Used by `peers`.

A frame is a kind (1 byte), a length (4 bytes, big-endian) and the payload.
"""

from __future__ import annotations

import asyncio
from enum import Enum

HEAD_BYTES = 5


class Kind(bytes, Enum):
    """ASK: the joining worker's request. All others are the generating worker's."""

    ASK = b"A"
    HEAD = b"H"
    PART = b"P"
    NOTICE = b"N"
    END = b"E"
    REFUSED = b"R"  # payload: an answer.Reason
    LOST = b"L"


def write(writer: asyncio.StreamWriter, kind: Kind, payload: bytes = b"") -> None:
    writer.write(kind.value + len(payload).to_bytes(4, "big") + payload)


async def read(reader: asyncio.StreamReader) -> tuple[Kind, bytes]:
    """Raises OSError, or EOFError where the other end has gone."""
    head = await reader.readexactly(HEAD_BYTES)
    size = int.from_bytes(head[1:], "big")
    return Kind(head[:1]), await reader.readexactly(size) if size else b""
