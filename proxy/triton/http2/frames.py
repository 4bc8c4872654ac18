"""HTTP/2 frames, settings and errors (RFC 9113, sections 4 to 7): bytes to frames and back."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
MAX_PAYLOAD = 16_384  # the protocol's default, which we do not change

HEADER = struct.Struct(">HBBBI")  # length in two parts, type, flags, stream
STREAM_MASK = 2**31 - 1
_NUMBER = struct.Struct(">I")


class ErrorCode(IntEnum):
    """RFC 9113, section 7."""

    NO_ERROR = 0
    PROTOCOL_ERROR = 1
    INTERNAL_ERROR = 2
    FLOW_CONTROL_ERROR = 3
    SETTINGS_TIMEOUT = 4
    STREAM_CLOSED = 5
    FRAME_SIZE_ERROR = 6
    REFUSED_STREAM = 7
    CANCEL = 8
    COMPRESSION_ERROR = 9
    CONNECT_ERROR = 10
    ENHANCE_YOUR_CALM = 11
    INADEQUATE_SECURITY = 12
    HTTP_1_1_REQUIRED = 13


NAMES = {code.value: code.name for code in ErrorCode}


def code_name(code: int) -> str:
    return NAMES.get(code) or f"error {code}"


class Fault(Exception):
    """`reason`: what was wrong, and with which value."""

    def __init__(self, code: ErrorCode, reason: str) -> None:
        super().__init__(f"{code.name}: {reason}")
        self.code = code
        self.reason = reason


class StreamFault(Fault):
    """Ends one stream."""


class ConnectionFault(Fault):
    """Ends the connection and all its streams."""


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


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    size = len(payload)
    return HEADER.pack(size >> 8, size & 0xFF, kind, flags, stream) + payload


def headers(stream: int, block: bytes) -> bytes:
    """HEADERS, and CONTINUATIONs for a long block. Does not end the stream."""
    if len(block) <= MAX_PAYLOAD:
        return frame(Kind.HEADERS, END_HEADERS, stream, block)
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


def increment(stream: int, payload: bytes) -> int:
    """The increment of a WINDOW_UPDATE. Raises a fault of the stream, or the connection, for 0."""
    found = number(payload, "WINDOW_UPDATE") & STREAM_MASK
    if not found:
        kind = StreamFault if stream else ConnectionFault
        raise kind(ErrorCode.PROTOCOL_ERROR, "a WINDOW_UPDATE of 0")
    return found


def parse_go_away(payload: bytes) -> tuple[int, int, str]:
    """The last stream that the peer has processed, the error code, and its text."""
    if len(payload) < 8:
        raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, f"a GOAWAY of {len(payload)} bytes")
    last, code = struct.unpack_from(">II", payload)
    return last & STREAM_MASK, code, payload[8:].decode("utf-8", "replace")


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


def number(payload: bytes, what: str) -> int:
    """What a frame of one number says, such as the code of a RST_STREAM."""
    if len(payload) != 4:
        raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, f"a {what} of {len(payload)} bytes")
    return int.from_bytes(payload, "big")


class Setting(IntEnum):
    HEADER_TABLE_SIZE = 1
    ENABLE_PUSH = 2
    MAX_CONCURRENT_STREAMS = 3
    INITIAL_WINDOW_SIZE = 4
    MAX_FRAME_SIZE = 5
    MAX_HEADER_LIST_SIZE = 6


MAX_WINDOW = 2**31 - 1
DEFAULT_WINDOW = 65_535
OUR_HEADER_TABLE = 4_096  # bytes: the most that our encoder uses

ACKNOWLEDGED = frame(Kind.SETTINGS, ACK, 0)
_ENTRY = struct.Struct(">HI")


@dataclass(slots=True)
class PeerSettings:
    """The peer's SETTINGS (section 6.5): the protocol's defaults, until the peer changes them."""

    header_table_size: int = OUR_HEADER_TABLE
    max_concurrent_streams: int = MAX_WINDOW
    initial_window: int = DEFAULT_WINDOW
    max_frame_size: int = MAX_PAYLOAD

    def update(self, payload: bytes) -> None:
        """Ignores unknown settings. Raises ConnectionFault for a forbidden value."""
        if len(payload) % _ENTRY.size:
            raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, f"a SETTINGS of {len(payload)} bytes")
        for name, value in _ENTRY.iter_unpack(payload):
            self._set(name, value)

    def _set(self, name: int, value: int) -> None:
        code = ErrorCode.PROTOCOL_ERROR
        match name:
            case Setting.HEADER_TABLE_SIZE:
                self.header_table_size = min(value, OUR_HEADER_TABLE)
            case Setting.MAX_CONCURRENT_STREAMS:
                self.max_concurrent_streams = value
            case Setting.INITIAL_WINDOW_SIZE if value <= MAX_WINDOW:
                self.initial_window = value
            case Setting.MAX_FRAME_SIZE if MAX_PAYLOAD <= value < 2**24:
                self.max_frame_size = value
            case Setting.INITIAL_WINDOW_SIZE:
                code = ErrorCode.FLOW_CONTROL_ERROR
                raise ConnectionFault(code, f"SETTINGS with INITIAL_WINDOW_SIZE {value}")
            case Setting.MAX_FRAME_SIZE:
                raise ConnectionFault(code, f"SETTINGS with MAX_FRAME_SIZE {value}")
            case Setting.ENABLE_PUSH if value:
                raise ConnectionFault(code, f"SETTINGS with ENABLE_PUSH {value}")


def settings(values: dict[Setting, int]) -> bytes:
    payload = b"".join(_ENTRY.pack(name, value) for name, value in values.items())
    return frame(Kind.SETTINGS, 0, 0, payload)
