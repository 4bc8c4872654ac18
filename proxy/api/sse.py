"""Server-sent events: framing and headers."""

from __future__ import annotations

from typing import Any

import orjson

HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]
DONE = b"data: [DONE]\n\n"


def event(payload: dict[str, Any]) -> bytes:
    """One event with a JSON payload on a single line."""
    return b"data: " + orjson.dumps(payload) + b"\n\n"
