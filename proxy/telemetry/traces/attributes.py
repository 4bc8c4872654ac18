"""The names of our spans' attributes, all in this file.

`gen_ai.…` is of OpenTelemetry's GenAI conventions (open-telemetry/semantic-conventions-genai, all
of it in development); `http.…`, `url.…` and `error.type` of its general ones; the others are ours.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

PROVIDER, PROVIDER_NAME = "gen_ai.provider.name", "triton"
OPERATION = "gen_ai.operation.name"
ERROR_TYPE = "error.type"
INPUT, OUTPUT = "gen_ai.input.messages", "gen_ai.output.messages"
DROPPED = "triton_openai.dropped_stages"
CONTENT_CUT, CONTENT_LOST = "triton_openai.content_cut", "triton_openai.content_lost"
OPERATIONS: Mapping[str, str] = {
    "/v1/chat/completions": "chat",
    "/v1/completions": "text_completion",
}

Convert = Callable[[Any], Any]


def _same(value: Any) -> Any:
    return value


def _seconds(milliseconds: Any) -> float:
    return float(milliseconds) / 1000


# Field of the request's log line -> attribute, and how its value is converted. Others stay out.
OF_LINE: Mapping[str, tuple[str, Convert]] = {
    "method": ("http.request.method", _same),
    "path": ("url.path", _same),
    "status": ("http.response.status_code", _same),
    "error": (ERROR_TYPE, _same),
    "model": ("gen_ai.request.model", _same),
    "id": ("gen_ai.response.id", _same),
    "finish": ("gen_ai.response.finish_reasons", lambda finish: (finish,)),
    "prompt_tokens": ("gen_ai.usage.input_tokens", _same),
    "completion_tokens": ("gen_ai.usage.output_tokens", _same),
    "cached_tokens": ("gen_ai.usage.cache_read.input_tokens", _same),
    "ttft_ms": ("gen_ai.response.time_to_first_chunk", _seconds),
    "tenant": ("triton_openai.tenant", _same),
    "key_id": ("triton_openai.key_id", _same),
    "resent": ("triton_openai.resent", _same),
    "continued": ("triton_openai.continued", _same),
    "idempotency": ("triton_openai.idempotency", _same),
    "capped_priority": ("triton_openai.capped_priority", _same),
}


# Attribute of a stage -> of its span. Others get PREFIX.
OF_STAGE: Mapping[str, str] = {"tool": "gen_ai.tool.name", "endpoint": "server.address"}
PREFIX = "triton_openai."


def of_stage(found: Mapping[str, Any]) -> dict[str, Any]:
    return {OF_STAGE.get(name, PREFIX + name): value for name, value in found.items()}


def of_line(line: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes of a request's own span."""
    found = {PROVIDER: PROVIDER_NAME}
    for field, (name, convert) in OF_LINE.items():
        if (value := line.get(field)) is not None:
            found[name] = convert(value)
    if operation := OPERATIONS.get(line.get("path", "")):
        found[OPERATION] = operation
    return found
