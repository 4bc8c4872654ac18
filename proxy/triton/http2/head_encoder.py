"""Encodes the head of a call as HPACK (RFC 7541). Most of it is equal for all calls."""

from __future__ import annotations

from collections.abc import Sequence

from hpack import Encoder
from hpack.hpack import encode_integer

Fields = Sequence[tuple[str, str]]

_REFERENCE = 0x80  # this bit marks a field that is an index into a table (section 6.1)
_LITERAL = b"\0"  # begins a literal field that no table keeps (section 6.2.2)


class HeadEncoder:
    """shared: the fields that every head begins with; later heads only refer to them."""

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
        if all(
            byte & _REFERENCE for byte in block
        ):  # only references change no table, now or later
            self._references = block
        return block


def _literal(name: str, value: str) -> bytes:
    return _LITERAL + _string(name) + _string(value)


def _string(text: str) -> bytes:
    """A literal string, without Huffman coding (section 5.2)."""
    data = text.encode()
    return bytes(encode_integer(len(data), 7)) + data
