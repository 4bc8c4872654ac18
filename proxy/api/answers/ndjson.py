"""Newline-delimited JSON: each payload a line, an error the last of them."""

from __future__ import annotations

import orjson

from triton_openai.proxy.api.answers.framing import Framing, Payload


def _line(payload: Payload) -> bytes:
    return orjson.dumps(payload) + b"\n"


def _error_line(body: Payload) -> bytes:
    return _line({**body, "done": True})


LINES = Framing(
    headers=[
        (b"content-type", b"application/json"),
        (b"cache-control", b"no-cache"),
        (b"x-accel-buffering", b"no"),
    ],
    payload=_line,
    error=_error_line,
)
