"""How a stream of payloads is written: what stands around each, and what an error is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import orjson

Payload = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Annotation:
    """Extra data that a client asked for, sent between the payloads of a stream. `value`: JSON."""

    name: str
    value: Any


Part = Payload | Annotation


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamFormat:
    """before, after: of each payload's JSON. end: is sent last, after an error as well.

    has_comments: the format has text that ordinary clients ignore. keep_alive: is sent in silence,
    if so. error_before: before `before`. error_body: what is sent of the usual error body.
    """

    headers: list[tuple[bytes, bytes]]
    before: bytes = b""
    after: bytes = b"\n"
    end: bytes = b""
    has_comments: bool = False
    keep_alive: bytes = b": keep-alive\n\n"
    error_before: bytes = b""
    error_body: Callable[[Payload], Payload] = dict

    def encode(self, part: Part) -> bytes:
        """Raises TypeError: an annotation, in a format without comments."""
        if isinstance(part, Annotation):
            return self.comment(part.name.encode() + b" " + orjson.dumps(part.value))
        return self.before + orjson.dumps(part) + self.after

    def error(self, body: Payload) -> bytes:
        return self.error_before + self.encode(self.error_body(body))

    def comment(self, text: bytes) -> bytes:
        """text: one line."""
        if not self.has_comments:
            raise TypeError(f"this format cannot carry the comment {text[:100]!r}")
        return b": " + text + b"\n\n"


def named_event(payload: Payload) -> bytes:
    """An event with the name of its type."""
    return b"event: %b\ndata: %b\n\n" % (payload["type"].encode(), orjson.dumps(payload))


UNBUFFERED = [(b"cache-control", b"no-cache"), (b"x-accel-buffering", b"no")]
# OpenAI's stream: an error is an ordinary event, and `[DONE]` is the end.
SSE = StreamFormat(
    headers=[(b"content-type", b"text/event-stream; charset=utf-8"), *UNBUFFERED],
    before=b"data: ",
    after=b"\n\n",
    end=b"data: [DONE]\n\n",
    has_comments=True,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedEvents(StreamFormat):
    """Each event has the name of its type."""

    headers: list[tuple[bytes, bytes]] = field(default_factory=SSE.headers.copy)
    has_comments: bool = True

    def encode(self, part: Part) -> bytes:
        return named_event(part) if isinstance(part, dict) else StreamFormat.encode(self, part)
