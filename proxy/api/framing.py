"""How a stream of JSON payloads becomes bytes: what `answer` needs to know of a stream's format."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Payload = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Framing:
    """`error` takes the usual error body; `end` follows it, too.

    `keep_alive` says nothing, to whoever waits; None where the format has no such words.
    """

    headers: list[tuple[bytes, bytes]]
    part: Callable[[Payload], bytes]
    error: Callable[[Payload], bytes]
    end: bytes = b""
    keep_alive: bytes | None = None
