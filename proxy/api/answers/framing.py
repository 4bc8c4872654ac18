"""How a stream of JSON payloads becomes bytes: what `answer` needs to know of a stream's format."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import orjson

Payload = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Annotation:
    """What a stream carries besides its payloads, for clients that want it. `value`: JSON."""

    name: str
    value: Any


Part = Payload | Annotation


@dataclass(frozen=True, slots=True, kw_only=True)
class Framing:
    """`error` takes the usual error body; `end` follows it, too.

    `comment` is for whoever listens; None where the format has no such words.
    """

    headers: list[tuple[bytes, bytes]]
    payload: Callable[[Payload], bytes]
    error: Callable[[Payload], bytes]
    end: bytes = b""
    comment: Callable[[bytes], bytes] | None = None

    def part(self, part: Part) -> bytes:
        if not isinstance(part, Annotation):
            return self.payload(part)
        if self.comment is None:
            raise TypeError(f"nobody asks for {part.name!r} in this format")
        return self.comment(part.name.encode() + b" " + orjson.dumps(part.value))
