"""The peer's SETTINGS (RFC 9113, section 6.5)."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from proxy.triton.http2.faults import ConnectionFault, ErrorCode
from proxy.triton.http2.frames import ACK, MAX_PAYLOAD, Kind, frame

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
    """The protocol's defaults, until the peer changes them."""

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
        if name == HEADER_TABLE_SIZE:
            self.header_table_size = min(value, OUR_HEADER_TABLE)
        elif name == MAX_CONCURRENT_STREAMS:
            self.max_concurrent_streams = value
        elif name == INITIAL_WINDOW_SIZE:
            if value > MAX_WINDOW:
                raise _forbidden("INITIAL_WINDOW_SIZE", value, ErrorCode.FLOW_CONTROL_ERROR)
            self.initial_window = value
        elif name == MAX_FRAME_SIZE:
            if not MAX_PAYLOAD <= value < 2**24:
                raise _forbidden("MAX_FRAME_SIZE", value)
            self.max_frame_size = value
        elif name == ENABLE_PUSH and value:
            raise _forbidden("ENABLE_PUSH", value)


def settings(values: dict[int, int]) -> bytes:
    payload = b"".join(_ENTRY.pack(name, value) for name, value in values.items())
    return frame(Kind.SETTINGS, 0, 0, payload)


def _forbidden(
    name: str, value: int, code: ErrorCode = ErrorCode.PROTOCOL_ERROR
) -> ConnectionFault:
    return ConnectionFault(code, f"SETTINGS with {name} {value}")
