"""Header blocks: the head of a call, encoded as HPACK (RFC 7541), and the peer's, decoded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hpack import Decoder, Encoder, HPACKError
from hpack.hpack import encode_integer

from proxy.triton.http2.frames import (
    END_HEADERS,
    END_STREAM,
    ConnectionFault,
    ErrorCode,
    Kind,
    StreamFault,
    unpadded,
)

Fields = Sequence[tuple[str, str]]

_REFERENCE = 0x80  # this bit marks a field that is an index into a table (section 6.1)
_LITERAL = b"\0"  # begins a literal field that no table keeps (section 6.2.2)


class HeadEncoder:
    """Most of a head is equal for all calls.

    shared: the fields that every head begins with; later heads only refer to them.
    """

    def __init__(self, shared: Fields) -> None:
        self._shared = tuple(shared)
        self._encoder = Encoder()
        self._references = b""

    def resize(self, table_size: int) -> None:
        """The peer has set the size of its table, in bytes."""
        if self._encoder.header_table_size != table_size:
            self._encoder.header_table_size = table_size
            self._references = b""

    def encode(self, own: Fields) -> bytes:
        """The header block of a call: the shared fields, then its own. To be sent in this order."""
        shared = self._references or self._written()
        return shared + b"".join(_literal(name, value) for name, value in own)

    def _written(self) -> bytes:
        block: bytes = self._encoder.encode(self._shared)
        if all(byte & _REFERENCE for byte in block):  # references change no table
            self._references = block
        return block


def _literal(name: str, value: str) -> bytes:
    return _LITERAL + _string(name) + _string(value)


def _string(text: str) -> bytes:
    """A literal string, without Huffman coding (section 5.2)."""
    data = text.encode()
    return bytes(encode_integer(len(data), 7)) + data


MAX_BLOCK = 64 * 1024  # bytes, encoded and decoded each
MOST_KNOWN = 16


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
        self._known: dict[bytes, dict[str, str]] = {}  # what blocks mean with the table of now
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
        """A block that leaves the table as it is means the same until another one changes it."""
        if (known := self._known.get(block)) is not None:
            return known
        size, newest = self._table()
        try:
            pairs = self._decoder.decode(block, raw=True)
        except HPACKError as error:
            raise ConnectionFault(
                ErrorCode.COMPRESSION_ERROR, "headers that HPACK does not know"
            ) from error
        fields = {
            bytes(name).decode("latin-1"): bytes(value).decode("latin-1") for name, value in pairs
        }
        size_now, newest_now = self._table()
        has_changed = size_now != size or newest_now is not newest
        if has_changed or len(self._known) == MOST_KNOWN:
            self._known.clear()
        if not has_changed:
            self._known[block] = fields
        return fields

    def _table(self) -> tuple[tuple[int, int], object]:
        """Its sizes, and its newest entry, which is a new object even if it equals an older one."""
        table = self._decoder.header_table
        entries = table.dynamic_entries
        return (table.maxsize, len(entries)), entries[0] if entries else None
