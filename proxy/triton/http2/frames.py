"""HTTP/2 frames (RFC 9113, sections 4 and 6): bytes to frames and back."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from enum import IntEnum

from proxy.triton.http2.faults import ConnectionFault, ErrorCode, StreamFault

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
MAX_PAYLOAD = 16_384  # the protocol's default, which we do not change

_HEADER = struct.Struct(">HBBBI")  # length in two parts, type, flags, stream
_STREAM_MASK = 2**31 - 1
_NUMBER = struct.Struct(">I")


class Kind(IntEnum):
    DATA = 0
    HEADERS = 1
    PRIORITY = 2
    RST_STREAM = 3
    SETTINGS = 4
    PUSH_PROMISE = 5
    PING = 6
    GOAWAY = 7
    WINDOW_UPDATE = 8
    CONTINUATION = 9


END_STREAM = ACK = 0x1
END_HEADERS = 0x4
PADDED = 0x8
PRIORITY = 0x20

Frame = tuple[int, int, int, bytes]  # kind, flags, stream, payload


class FrameReader:
    """Splits bytes, which arrive in pieces, into frames."""

    __slots__ = ("_rest",)

    def __init__(self) -> None:
        self._rest = b""

    def push(self, data: bytes) -> Iterator[Frame]:
        """The frames that `data` completes.

        Raises:
            ConnectionFault: one is longer than MAX_PAYLOAD bytes.
        """
        if self._rest:
            data = self._rest + data
            self._rest = b""
        at, end = 0, len(data)
        while end - at >= 9:
            high, low, kind, flags, stream = _HEADER.unpack_from(data, at)
            size = high << 8 | low
            if size > MAX_PAYLOAD:
                raise ConnectionFault(
                    ErrorCode.FRAME_SIZE_ERROR,
                    f"a frame of {size} bytes, more than the {MAX_PAYLOAD} allowed",
                )
            start, after = at + 9, at + 9 + size
            if after > end:
                break
            yield kind, flags, stream & _STREAM_MASK, data[start:after]
            at = after
        self._rest = data[at:]


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    size = len(payload)
    return _HEADER.pack(size >> 8, size & 0xFF, kind, flags, stream) + payload


def headers(stream: int, block: bytes) -> bytes:
    """HEADERS, and CONTINUATIONs for a long block. Does not end the stream."""
    parts = [block[at : at + MAX_PAYLOAD] for at in range(0, len(block), MAX_PAYLOAD)]
    kinds = [Kind.HEADERS] + [Kind.CONTINUATION] * (len(parts) - 1)
    flags = [0] * (len(parts) - 1) + [END_HEADERS]
    return b"".join(
        frame(kind, flag, stream, part)
        for kind, flag, part in zip(kinds, flags, parts, strict=True)
    )


def window_update(stream: int, increment: int) -> bytes:
    return frame(Kind.WINDOW_UPDATE, 0, stream, _NUMBER.pack(increment))


def reset(stream: int, code: int) -> bytes:
    return frame(Kind.RST_STREAM, 0, stream, _NUMBER.pack(code))


def go_away(code: int, reason: str) -> bytes:
    """A GOAWAY from a client, on whose connection the peer has opened no stream."""
    return frame(Kind.GOAWAY, 0, 0, struct.pack(">II", 0, code) + reason.encode())


def reset_code(payload: bytes) -> int:
    """The error code of a RST_STREAM."""
    return _number(payload, "RST_STREAM")


def increment(stream: int, payload: bytes) -> int:
    """The increment of a WINDOW_UPDATE. Raises a fault of the stream, or the connection, for 0."""
    found = _number(payload, "WINDOW_UPDATE") & _STREAM_MASK
    if not found:
        kind = StreamFault if stream else ConnectionFault
        raise kind(ErrorCode.PROTOCOL_ERROR, "a WINDOW_UPDATE of 0")
    return found


def parse_go_away(payload: bytes) -> tuple[int, int, str]:
    """The last stream that the peer has processed, the error code, and its text."""
    if len(payload) < 8:
        raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, f"a GOAWAY of {len(payload)} bytes")
    last, code = struct.unpack_from(">II", payload)
    return last & _STREAM_MASK, code, payload[8:].decode("utf-8", "replace")


def unpadded(flags: int, payload: bytes) -> bytes:
    """The payload of DATA or HEADERS without padding and priority."""
    if not flags & (PADDED | PRIORITY):
        return payload
    start, end = 0, len(payload)
    if flags & PADDED:
        start, end = 1, end - (payload[0] if payload else 0)
    if flags & PRIORITY:
        start += 5
    if start > end:
        raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "padding longer than its frame")
    return payload[start:end]


def _number(payload: bytes, what: str) -> int:
    if len(payload) != 4:
        raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, f"a {what} of {len(payload)} bytes")
    return int.from_bytes(payload, "big")
