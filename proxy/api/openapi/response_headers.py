"""Headers of answers that are our own, or mean something to OpenAI's SDKs. Used by `document`."""

from __future__ import annotations

from typing import Any

from triton_openai.proxy.api.openapi import keyed_requests

HEADERS: dict[str, Any] = {
    "x-request-id": {
        "description": "The request's id in the server's log: the caller's own, if it sent one.",
        "schema": {"type": "string"},
    },
    "retry-after": {
        "description": "Seconds to wait before the next try.",
        "schema": {"type": "integer", "minimum": 0},
    },
    "retry-after-ms": {
        "description": "Milliseconds to wait before the next try.",
        "schema": {"type": "integer", "minimum": 0},
    },
    "x-should-retry": {
        "description": "Whether OpenAI's SDKs send the request again.",
        "schema": {"type": "string", "enum": ["true", "false"]},
    },
    "www-authenticate": {
        "description": "How to send the API key: RFC 6750.",
        "schema": {"type": "string"},
    },
    "allow": {"description": "The methods of this route.", "schema": {"type": "string"}},
    "x-attempts": {
        "description": "How many answers were generated until one conformed to its schema.",
        "schema": {"type": "integer", "minimum": 1},
    },
    "x-resends": {
        "description": "How many streams were sent again, because Triton was lost at first.",
        "schema": {"type": "integer", "minimum": 1},
    },
    "x-queue-position": {
        "description": "Where the request stands in its model's queue: 1 is next, 0 has waited.",
        "schema": {"type": "integer", "minimum": 0},
    },
    "x-queue-wait": {
        "description": "Seconds that the request waits in its model's queue in all: measured, "
        "or expected where it still waits.",
        "schema": {"type": "number", "minimum": 0},
    },
    "x-continued": {
        "description": "How often streams lost their engine, and another one continued them.",
        "schema": {"type": "integer", "minimum": 1},
    },
    "x-unenforced-keywords": {
        "description": "Keywords of the caller's schema that were not enforced on the answer.",
        "schema": {"type": "string"},
    },
    "x-priority-capped": {
        "description": "The caller's ceiling, with the sign of `priority`: it asked to go before "
        "others further than it may.",
        "schema": {"type": "integer"},
    },
    "x-fallback-from": {
        "description": "The model that the request names, which the model in the body replaced.",
        "schema": {"type": "string"},
    },
    "deprecation": {
        "description": "From when callers should use another model: RFC 9745, `@` and Unix time.",
        "schema": {"type": "string", "pattern": "^@-?[0-9]+$"},
    },
    "sunset": {
        "description": "From when the model may be gone: RFC 8594, an HTTP date.",
        "schema": {"type": "string"},
    },
    "link": {"description": "A page about both: RFC 8288.", "schema": {"type": "string"}},
    **keyed_requests.HEADERS,
}
