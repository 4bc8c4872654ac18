"""Reads multipart/form-data (RFC 7578) while it comes: a part's bytes are never held as a whole."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from email.message import Message

from proxy.domain.errors import InvalidRequest

MOST_HEAD_BYTES = 8_192
MOST_PARTS = 16


@dataclass(frozen=True, slots=True)
class Part:
    """filename: None where the part is a plain field. pieces: to be read before the next part."""

    name: str
    filename: str | None
    pieces: AsyncIterator[bytes]


class MultipartReader:
    """Raises InvalidRequest: the body is malformed, or has too many parts.

    pieces: of the body. boundary: of its Content-Type.
    """

    def __init__(self, pieces: AsyncIterator[bytes], boundary: bytes) -> None:
        self._pieces = pieces
        self._mark = b"\r\n--" + boundary
        self._data = b"\r\n"  # the first mark may have no line before it

    async def parts(self) -> AsyncIterator[Part]:
        async for _ in self._content():  # what is before the first part means nothing
            pass
        for _ in range(MOST_PARTS):
            while len(self._data) < 2:
                await self._receive()
            if self._data.startswith(b"--"):
                return
            part = _part(await self._head(), self._content())
            yield part
            async for _ in part.pieces:
                pass
        raise malformed(f"it has more than {MOST_PARTS} parts")

    async def _head(self) -> bytes:
        while (end := self._data.find(b"\r\n\r\n")) < 0:
            if len(self._data) > MOST_HEAD_BYTES:
                raise malformed(f"a part's head is longer than {MOST_HEAD_BYTES} bytes")
            await self._receive()
        head, self._data = self._data[:end], self._data[end + 4 :]
        return head

    async def _content(self) -> AsyncIterator[bytes]:
        """Up to the next mark, which is dropped."""
        kept = len(self._mark) - 1
        while (end := self._data.find(self._mark)) < 0:
            if len(self._data) > kept:
                piece, self._data = self._data[:-kept], self._data[-kept:]
                yield piece
            await self._receive()
        piece, self._data = self._data[:end], self._data[end + len(self._mark) :]
        if piece:
            yield piece

    async def _receive(self) -> None:
        piece = await anext(self._pieces, None)
        if piece is None:
            raise malformed("it ends in the middle of a part")
        self._data += piece


def boundary_of(content_type: str) -> bytes | None:
    """None: it is not the type of a form."""
    header = Message()
    header["content-type"] = content_type
    boundary = header.get_param("boundary")
    if header.get_content_type() != "multipart/form-data" or not isinstance(boundary, str):
        return None
    return boundary.encode() if 0 < len(boundary) <= 70 else None  # as RFC 2046 says


def _part(head: bytes, pieces: AsyncIterator[bytes]) -> Part:
    for line in head.split(b"\r\n"):
        field, _, value = line.decode("utf-8", "replace").partition(":")
        if field.strip().lower() == "content-disposition":
            header = Message()
            header["content-disposition"] = " ".join(value.split())
            name = header.get_param("name", header="content-disposition")
            if isinstance(name, str):
                return Part(name, header.get_filename(), pieces)
    raise malformed("a part has no name")


def malformed(why: str) -> InvalidRequest:
    return InvalidRequest(f"The body is not multipart/form-data: {why}.", param=None)
