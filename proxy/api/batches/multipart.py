"""Reads multipart/form-data (RFC 7578) while it comes: a part's bytes are never held as a whole."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from dataclasses import dataclass

from proxy.domain.errors import InvalidRequest

MOST_HEAD_BYTES = 8_192
MOST_PARTS = 16
_parameter = re.compile(r';\s*([\w*-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s;"]*))')


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
    kind, parameters = _read(content_type)
    boundary = parameters.get("boundary", "")
    is_form = kind == "multipart/form-data" and 0 < len(boundary) <= 70  # as RFC 2046 says
    return boundary.encode() if is_form else None


def _part(head: bytes, pieces: AsyncIterator[bytes]) -> Part:
    for line in head.decode("utf-8", "replace").split("\r\n"):
        field, _, value = line.partition(":")
        if field.strip().lower() == "content-disposition":
            parameters = _read(value)[1]
            if "name" in parameters:
                return Part(parameters["name"], parameters.get("filename"), pieces)
    raise malformed("a part has no name")


def _read(value: str) -> tuple[str, dict[str, str]]:
    """A header's value and its parameters. RFC 7578 has no extended ones (`filename*`)."""
    found = {
        name.lower(): re.sub(r'\\(["\\])', r"\1", quoted) or plain
        for name, quoted, plain in _parameter.findall(value)
    }
    return value.partition(";")[0].strip().lower(), found


def malformed(why: str) -> InvalidRequest:
    return InvalidRequest(f"The body is not multipart/form-data: {why}.", param=None)
