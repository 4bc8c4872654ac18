"""Server-sent events: framing and headers."""

from __future__ import annotations

from dataclasses import replace

import orjson

from triton_openai.proxy.api.answers.framing import Framing, Payload


def event(payload: Payload) -> bytes:
    """One event with a JSON payload on a single line."""
    return b"data: " + orjson.dumps(payload) + b"\n\n"


def _comment(text: bytes) -> bytes:
    """Clients pass over it unless they look for it; `text` is one line."""
    return b": " + text + b"\n\n"


def _named_error(body: Payload) -> bytes:
    fields = {key: body["error"][key] for key in ("message", "type", "code")}
    return b"event: error\n" + event(fields)


OPENAI = Framing(
    headers=[
        (b"content-type", b"text/event-stream; charset=utf-8"),
        (b"cache-control", b"no-cache"),
        (b"x-accel-buffering", b"no"),
    ],
    payload=event,
    error=event,
    end=b"data: [DONE]\n\n",
    comment=_comment,
)
# For /chat/sse: an error is an event of that name.
NAMED_ERRORS = replace(OPENAI, error=_named_error)
