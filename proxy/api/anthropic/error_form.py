"""Errors as Anthropic's API writes them: `{"type": "error", "error": {"type", "message"}, …}`."""

from __future__ import annotations

import re
from typing import Any

from proxy.domain.errors import ErrorCode
from proxy.domain.record import running_record

Json = dict[str, Any]
INVALID = "invalid_request_error"
# By status; others are INVALID. The SDKs know these types: anthropic 2.14, of 2026-11.
TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    409: "conflict_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    503: "overloaded_error",
    504: "timeout_error",
}
OF_CODES = {code.value: TYPES.get(code.status, INVALID) for code in ErrorCode}
# No chat is kept here. Tool runners of the SDKs first ask for that, and do without if they get this
# (anthropic 2.14, lib/threads).
NO_THREADS = {"error_code": "thread_unsupported_request", "unsupported": ["thread"]}
# The numbers in the message for `max_tokens` over the room that the prompt leaves: context, total,
# prompt, answer.
ROOM = re.compile(r"(\d+) tokens\. You asked for \d+ \((\d+) in the prompt, (\d+) for the answer\)")


def message_error(body: Json) -> Json:
    """body: of the same error in OpenAI's form."""
    error = body["error"]
    message = error["message"]
    if error["code"] == ErrorCode.CONTEXT_LENGTH_EXCEEDED.value:
        message = _too_long(message)
    told: Json = {"type": OF_CODES.get(error["code"], INVALID), "message": message}
    if error["param"] == "thread":
        told["details"] = NO_THREADS
    return {
        "type": "error",
        "error": told,
        "request_id": running_record().request_id or None,
    }


def _too_long(message: str) -> str:
    """Begins with the words of Anthropic's API, by which Claude Code knows that it must compact the
    chat, or ask for a shorter answer.
    """
    if (found := ROOM.search(message)) is None:
        return f"prompt is too long: {message}"
    context, prompt, answer = found.groups()
    return (
        f"input length and `max_tokens` exceed context limit: {prompt} + {answer} > {context}, "
        "decrease input length or `max_tokens` and try again"
    )
