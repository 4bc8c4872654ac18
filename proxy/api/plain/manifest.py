"""The plain chat."""

from __future__ import annotations

from dataclasses import replace

from proxy.api.http.stream_format import SSE, UNBUFFERED, StreamFormat
from proxy.api.manifest import Manifest, Route
from proxy.api.plain.plain_chat import PlainChunk
from proxy.domain.identity import Scope

# An error is an event with the name `error`.
SSE_NAMED_ERRORS = replace(
    SSE,
    error_before=b"event: error\n",
    error_body=lambda body: {key: body["error"][key] for key in ("message", "type", "code")},
)
# Newline-delimited JSON; an error is the last line.
JSON_LINES = StreamFormat(
    headers=[(b"content-type", b"application/json"), *UNBUFFERED],
    error_body=lambda body: {**body, "done": True},
)

PLAIN = Manifest(
    routes={
        "/chat/json": Route(need=Scope.CHAT),
        "/chat/stream": Route(need=Scope.CHAT, framing=JSON_LINES),
        "/chat/sse": Route(need=Scope.CHAT, framing=SSE_NAMED_ERRORS),
    },
    events=(PlainChunk,),
)
