"""Images in a chat's messages, for models that read them; and what the head of a file says."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

# How files begin; WebP's name comes behind its size.
_STARTS = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF87a": "image/gif",
    b"GIF89a": "image/gif",
}
MEDIA_TYPES = (*dict.fromkeys(_STARTS.values()), "image/webp")
MOST_BLOCKS = 1_000  # of a file, that are passed on the way to its size
NO_FRAMES = (0xFFC4, 0xFFC8, 0xFFCC)  # JPEG's markers among those of frames that are none


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """base64: of the file's bytes. url: where it is fetched before a request is sent to an engine;
    until then it has nothing else. place: the path of the caller's field.
    """

    media_type: str = ""
    base64: str = field(default="", repr=False)
    url: str | None = None
    place: str = field(default="", compare=False)


class NoSize(ValueError):
    """The head of a file does not say how many pixels it has."""


def media_type(data: bytes) -> str | None:
    """The type of a file by its first bytes; None if it is none of MEDIA_TYPES."""
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for start, kind in _STARTS.items() if data.startswith(start)), None)


def pixels(data: bytes) -> int:
    """How many a decoder makes of a file of MEDIA_TYPES, by its head.

    Of several sizes the largest counts, and what decoders may read in another way has none.

    Raises:
        NoSize.
    """
    match media_type(data):
        case "image/png":
            return _of_png(data)
        case "image/jpeg":
            return _of_jpeg(data)
        case "image/gif":
            return _of_gif(data)
    return _of_webp(data)


def _of_png(data: bytes) -> int:
    at, found = 8, 0
    for _ in range(MOST_BLOCKS):
        kind, size = data[at + 4 : at + 8], _number(data, at, 4, "big")
        if kind == b"IDAT" and found:
            return found
        if kind == b"IHDR":
            found = max(found, _number(data, at + 8, 4, "big") * _number(data, at + 12, 4, "big"))
        at += 12 + size
    raise NoSize


def _of_jpeg(data: bytes) -> int:
    at, found = 2, 0
    for _ in range(MOST_BLOCKS):
        marker = _number(data, at, 2, "big")
        if marker == 0xFFFF:  # filled up
            at += 1
            continue
        if marker == 0xFFDA and found:
            return found
        if marker <= 0xFF01 or 0xFFD0 <= marker <= 0xFFDA:  # they have no length
            break
        if 0xFFC0 <= marker <= 0xFFCF and marker not in NO_FRAMES:
            found = max(found, _number(data, at + 5, 2, "big") * _number(data, at + 7, 2, "big"))
        at += 2 + _number(data, at + 2, 2, "big")
    raise NoSize


def _of_gif(data: bytes) -> int:
    """Its first frame may be larger than its screen."""
    colors = _number(data, 10, 1, "big")
    at, is_extension = 13 + (6 << (colors & 7) if colors & 0x80 else 0), False
    for _ in range(MOST_BLOCKS):
        block = _number(data, at, 1, "big")
        if is_extension:
            at, is_extension = at + 1 + block, block > 0
        elif block == 0x21:
            at, is_extension = at + 2, True
        elif block == 0x2C:
            left, top, wide, high = (_number(data, at + n, 2, "little") for n in (1, 3, 5, 7))
            screen = _number(data, 6, 2, "little"), _number(data, 8, 2, "little")
            return max(screen[0], left + wide) * max(screen[1], top + high)
        else:
            break
    raise NoSize


def _of_webp(data: bytes) -> int:
    match data[12:16]:
        case b"VP8X":
            return (1 + _number(data, 24, 3, "little")) * (1 + _number(data, 27, 3, "little"))
        case b"VP8L":
            bits = _number(data, 21, 4, "little")
            return (1 + (bits & 0x3FFF)) * (1 + (bits >> 14 & 0x3FFF))
        case b"VP8 ":
            wide, high = _number(data, 26, 2, "little"), _number(data, 28, 2, "little")
            return (wide & 0x3FFF) * (high & 0x3FFF)
    raise NoSize


def _number(data: bytes, at: int, size: int, order: Literal["little", "big"]) -> int:
    """Raises NoSize: the file ends before."""
    if len(raw := data[at : at + size]) < size:
        raise NoSize
    return int.from_bytes(raw, order)
