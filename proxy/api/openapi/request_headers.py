"""The request headers of our own that routes take, for the OpenAPI document."""

from __future__ import annotations

from typing import Any

from triton_openai.proxy.api.bodies import queue_patience

DESCRIPTIONS: dict[str, dict[str, Any]] = {
    queue_patience.HEADER: {
        "description": "How long the request waits for a row of its model, in milliseconds; 0: not "
        "at all. Without it: as long as the server lets it.",
        "schema": {"type": "integer", "minimum": 0, "maximum": queue_patience.MOST_MS},
    },
}


def header_parameter(name: str) -> dict[str, Any]:
    return {"name": name, "in": "header", "required": False, **DESCRIPTIONS[name]}
