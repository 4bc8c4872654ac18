"""Header blocks: the head of a call, encoded as HPACK (RFC 7541), and the peer's, decoded."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from hpack import Decoder, Encoder, HPACKError
from hpack.hpack import encode_integer

from proxy.triton.http2.frames import (
    END_HEADERS,
    END_STREAM,
    ConnectionFault,
    ErrorCode,
    Kind,
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
        block = self._references or self._written()
        for name, value in own:
            block += _literal(name, value)
        return block

    def _written(self) -> bytes:
        block: bytes = self._encoder.encode(self._shared)
        if all(byte & _REFERENCE for byte in block):  # references change no table
            self._references = block
        return block


@lru_cache(maxsize=64)  # most timeouts are the same
def _literal(name: str, value: str) -> bytes:
    """A field as two literal strings, without Huffman coding (section 5.2)."""
    parts = [_LITERAL]
    for text in (name, value):
        data = text.encode()
        parts += (bytes(encode_integer(len(data), 7)), data)
    return b"".join(parts)


MAX_BLOCK = 64 * 1024  # bytes, encoded and decoded each
MOST_KNOWN = 16


class HeaderBlocks:
    """Joins fragments. stream: the one whose block the next frame must continue; 0 for none."""

    def __init__(self) -> None:
        self._decoder = Decoder(max_header_list_size=MAX_BLOCK)
        self._known: dict[bytes, dict[str, str]] = {}  # what blocks mean with the table of now
        self._block = b""
        self.stream = 0
        self.ends_stream = False  # of the block that came last

    def push(self, kind: int, flags: int, stream: int, payload: bytes) -> dict[str, str] | None:
        """Adds HEADERS or CONTINUATION; returns the fields of a completed block. If a name occurs
        twice, the last value counts. Raises ConnectionFault.
        """
        if kind == Kind.HEADERS:
            self.stream, self.ends_stream = stream, bool(flags & END_STREAM)
            payload = unpadded(flags, payload)
        elif not self.stream or stream != self.stream:
            raise ConnectionFault(
                ErrorCode.PROTOCOL_ERROR, f"a CONTINUATION of stream {stream}, which has none"
            )
        block = self._block + payload
        if len(block) > MAX_BLOCK:
            raise ConnectionFault(
                ErrorCode.ENHANCE_YOUR_CALM, f"a header block of {len(block)} bytes"
            )
        if not flags & END_HEADERS:
            self._block = block
            return None
        self._block, self.stream = b"", 0
        # a block that leaves the table as it is means the same until another one changes it
        if (known := self._known.get(block)) is None:
            known = self._decoded(block)
        return known

    def _decoded(self, block: bytes) -> dict[str, str]:
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
