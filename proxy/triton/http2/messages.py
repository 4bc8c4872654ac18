"""gRPC messages in a byte stream: a flag, four bytes of length, the message."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from grpc import StatusCode

from proxy.triton.http2.status import Status

_PREFIX = struct.Struct(">BI")
PREFIX_BYTES = _PREFIX.size


class BadMessage(Exception):
    """Ends the call with `status`."""

    def __init__(self, status: Status) -> None:
        super().__init__(status.details)
        self.status = status


def framed(message: bytes) -> bytes:
    return _PREFIX.pack(0, len(message)) + message


class MessageReader:
    """Splits bytes, which arrive in pieces, into messages of at most `max_bytes`."""

    __slots__ = ("_expected", "_max_bytes", "_rest")

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._rest = bytearray()
        self._expected = PREFIX_BYTES  # length of the first message in `_rest`, as far as known

    @property
    def is_inside(self) -> bool:
        """Whether a message has begun and not ended."""
        return bool(self._rest)

    def whole(self, data: bytes) -> bytes | None:
        """The message if `data` is exactly one, as nearly every frame is; otherwise None."""
        size = len(data) - PREFIX_BYTES
        if self._rest or not 0 <= size <= self._max_bytes:
            return None
        return data[PREFIX_BYTES:] if data.startswith(_PREFIX.pack(0, size)) else None

    def push(self, data: bytes) -> Iterator[bytes]:
        """The messages that `data` completes.

        Raises:
            BadMessage: one is too long or compressed; those before it were yielded.
        """
        self._rest += data
        while len(self._rest) >= self._expected:
            self._expected = self._size(self._rest, 0)
            if len(self._rest) < self._expected:
                return
            message = bytes(memoryview(self._rest)[PREFIX_BYTES : self._expected])
            del self._rest[: self._expected]
            self._expected = PREFIX_BYTES
            yield message

    def _size(self, data: bytes | bytearray, at: int) -> int:
        """Including the prefix."""
        flag, size = _PREFIX.unpack_from(data, at)
        if flag:
            raise BadMessage(
                Status(
                    StatusCode.INTERNAL,
                    f"a compressed message (flag {flag}), although the call allowed no encoding",
                )
            )
        if size > self._max_bytes:
            raise BadMessage(
                Status(
                    StatusCode.RESOURCE_EXHAUSTED,
                    f"a message of {size} bytes, more than the {self._max_bytes} allowed",
                )
            )
        return PREFIX_BYTES + int(size)
