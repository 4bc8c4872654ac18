"""Header blocks: HEADERS and its CONTINUATIONs, decoded by the hpack library."""

from __future__ import annotations

from dataclasses import dataclass

from hpack import Decoder, HPACKError

from proxy.triton.http2.faults import ConnectionFault, ErrorCode, StreamFault
from proxy.triton.http2.frames import END_HEADERS, END_STREAM, Kind, unpadded

MAX_BLOCK = 64 * 1024  # bytes, encoded and decoded each


@dataclass(frozen=True, slots=True)
class Headers:
    """A complete block. If a name occurs twice, the last value counts."""

    stream: int
    fields: dict[str, str]
    ends_stream: bool

    @property
    def is_interim(self) -> bool:
        """Status 1xx: the response head follows."""
        return self.fields.get(":status", "").startswith("1") and not self.ends_stream

    def check(self, *, is_head: bool) -> None:
        """Raises StreamFault if it is malformed (RFC 9113, sections 8.2 and 8.3)."""
        allowed = {":status"} if is_head else set()
        for name in self.fields:
            if name.lower() != name or (name.startswith(":") and name not in allowed):
                raise StreamFault(ErrorCode.PROTOCOL_ERROR, f"a header named {name!r}")
        if is_head and ":status" not in self.fields:
            raise StreamFault(ErrorCode.PROTOCOL_ERROR, "a response without :status")


class HeaderBlocks:
    """Joins fragments. stream: the one whose block the next frame must continue; 0 for none."""

    def __init__(self) -> None:
        self._decoder = Decoder(max_header_list_size=MAX_BLOCK)
        self._block = bytearray()
        self.stream = 0
        self._ends_stream = False

    def push(self, kind: int, flags: int, stream: int, payload: bytes) -> Headers | None:
        """Adds HEADERS or CONTINUATION; returns a completed block. Raises ConnectionFault."""
        if kind == Kind.HEADERS:
            self.stream, self._ends_stream = stream, bool(flags & END_STREAM)
            return self._add(flags, unpadded(flags, payload))
        if not self.stream or stream != self.stream:
            raise ConnectionFault(
                ErrorCode.PROTOCOL_ERROR, f"a CONTINUATION of stream {stream}, which has none"
            )
        return self._add(flags, payload)

    def _add(self, flags: int, fragment: bytes) -> Headers | None:
        self._block += fragment
        if len(self._block) > MAX_BLOCK:
            raise ConnectionFault(
                ErrorCode.ENHANCE_YOUR_CALM, f"a header block of {len(self._block)} bytes"
            )
        if not flags & END_HEADERS:
            return None
        block, self._block = bytes(self._block), bytearray()
        stream, self.stream = self.stream, 0
        return Headers(stream, self._decoded(block), self._ends_stream)

    def _decoded(self, block: bytes) -> dict[str, str]:
        try:
            pairs = self._decoder.decode(block, raw=True)
        except HPACKError as error:
            raise ConnectionFault(
                ErrorCode.COMPRESSION_ERROR, "headers that HPACK does not know"
            ) from error
        return {
            bytes(name).decode("latin-1"): bytes(value).decode("latin-1") for name, value in pairs
        }
