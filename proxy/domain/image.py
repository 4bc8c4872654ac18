"""Images in a chat's messages, for models that read them."""

from __future__ import annotations

from dataclasses import dataclass, field

# How files begin; WebP's name comes behind its size.
_STARTS = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF87a": "image/gif",
    b"GIF89a": "image/gif",
}
MEDIA_TYPES = (*dict.fromkeys(_STARTS.values()), "image/webp")


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """base64: of the file's bytes. url: where it is fetched before a request is sent to an engine;
    until then it has nothing else.
    """

    media_type: str = ""
    base64: str = field(default="", repr=False)
    url: str | None = None


def media_type(data: bytes) -> str | None:
    """The type of a file by its first bytes; None if it is none of MEDIA_TYPES."""
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for start, kind in _STARTS.items() if data.startswith(start)), None)
