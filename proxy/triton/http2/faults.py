"""What the peer did wrong: the fault of one stream, or of the whole connection (RFC 9113, 5.4)."""

from __future__ import annotations

from enum import IntEnum


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


def known_code(code: int) -> ErrorCode | None:
    try:
        return ErrorCode(code)
    except ValueError:
        return None


def code_name(code: int) -> str:
    known = known_code(code)
    return f"error {code}" if known is None else known.name


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
