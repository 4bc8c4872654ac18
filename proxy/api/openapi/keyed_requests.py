"""What every POST route has in the OpenAPI document for Idempotency-Key. Used by `document`."""

from __future__ import annotations

from typing import Any

from triton_openai.proxy.api.idempotency import key_headers

PARAMETERS: dict[str, Any] = {
    key_headers.KEY: {
        "name": key_headers.KEY,
        "in": "header",
        "description": "One generation for each key: the same request with the same key gets the "
        "same answer. Bare or quoted.",
        "schema": {"type": "string", "pattern": "^[!#-~]([ -~]{0,253}[!-~])?$"},
    },
    key_headers.LAST_EVENT_ID: {
        "name": key_headers.LAST_EVENT_ID,
        "in": "header",
        "description": "Continues the stream of the same request and key after the event with this "
        "`id`.",
        "schema": {"type": "string", "pattern": f"^[0-9]{{1,{key_headers.LONGEST_EVENT_ID}}}$"},
    },
}
REFERENCES = [{"$ref": f"#/components/parameters/{name}"} for name in PARAMETERS]
ERRORS = (409, 410, 429, 503)
HEADERS: dict[str, Any] = {
    "idempotent-replayed": {
        "description": "The answer was generated for an earlier request with the same key.",
        "schema": {"type": "string", "const": "true"},
    },
    "x-original-request-id": {
        "description": "The `x-request-id` of that request.",
        "schema": {"type": "string"},
    },
    "idempotency-unavailable": {
        "description": "The key had no effect: its records cannot be used at present.",
        "schema": {"type": "string", "const": "true"},
    },
}
