"""The head of a call as HPACK (RFC 7541). Most of it is the same for all calls of a connection."""

from __future__ import annotations

from collections.abc import Sequence

from hpack import Encoder
from hpack.hpack import encode_integer

Fields = Sequence[tuple[str, str]]

_REFERENCE = 0x80  # this bit: a field by its number in a table (section 6.1)
_LITERAL = b"\0"  # a field in full, which no table keeps (section 6.2.2)


class HeadEncoder:
    """`shared`: what every head begins with. Once the peer has it, it is a reference a field."""

    def __init__(self, shared: Fields) -> None:
        self._shared = tuple(shared)
        self._encoder = Encoder()
        self._references = b""

    def resize(self, table_size: int) -> None:
        """The peer's table is another, in bytes."""
        if self._encoder.header_table_size != table_size:
            self._encoder.header_table_size = table_size
            self._references = b""

    def encode(self, own: Fields) -> bytes:
        """The head of a call that has fields of its own."""
        shared = self._references or self._written()
        return shared + b"".join(_literal(name, value) for name, value in own)

    def _written(self) -> bytes:
        block: bytes = self._encoder.encode(self._shared)
        if all(byte & _REFERENCE for byte in block):  # which changes no table, now or later
            self._references = block
        return block


def _literal(name: str, value: str) -> bytes:
    return _LITERAL + _string(name) + _string(value)


def _string(text: str) -> bytes:
    """As it is (section 5.2)."""
    data = text.encode()
    return bytes(encode_integer(len(data), 7)) + data
