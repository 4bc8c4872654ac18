"""Errors as Anthropic's API writes them: `{"type": "error", "error": {"type", "message"}, …}`."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from proxy.domain.errors import ErrorCode
from proxy.domain.record import running_record

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
# Our messages, and Anthropic's sentences for the same. Claude Code compacts a chat, asks for a
# shorter answer, or leaves out what is refused, by these words; without them it asks again.
SENTENCES: tuple[tuple[str, str | Callable[[re.Match[str]], str]], ...] = (
    (
        r".*?(\d+) tokens\. You asked for \d+ \((\d+) in the prompt, (\d+) for the answer\).*",
        r"input length and `max_tokens` exceed context limit: \2 + \3 > \1, decrease input length "
        "or `max_tokens` and try again",
    ),
    (
        r".*?(\d+) tokens\D* the prompt has (?:more than )?(\d+).*",
        r"prompt is too long: \2 tokens > \1 maximum",
    ),
    (
        r"Invalid value for 'max_tokens': (\d+)\. This server allows at most (\d+) for the model "
        r"'(.*)'\.",
        r"max_tokens: \1 > \2, which is the maximum allowed number of output tokens for \3",
    ),
    (
        r"(Unsupported parameter: '([^']+)' is not supported by .*)",
        lambda found: f"{_dotted(found[2])}: Extra inputs are not permitted. {found[1]}",
    ),
    (
        r"Missing required parameter: '([^']+)'(.*)",
        lambda found: f"{_dotted(found[1])}: Field required{found[2]}",
    ),
    (r"(The image .* cannot be used: .*)", r"Could not process image. \1"),
)
COMPILED = tuple((re.compile(ours, re.DOTALL), theirs) for ours, theirs in SENTENCES)


def message_error(body: dict[str, Any]) -> dict[str, Any]:
    """body: of the same error in OpenAI's form."""
    error = body["error"]
    told: dict[str, Any] = {"type": OF_CODES.get(error["code"], INVALID), "message": _worded(error)}
    if error["param"] == "thread":
        told["details"] = NO_THREADS
    return {
        "type": "error",
        "error": told,
        "request_id": running_record().request_id or None,
    }


def _worded(error: dict[str, Any]) -> str:
    """The message as Anthropic's API writes it, where it has one for this."""
    message = str(error["message"])
    if OF_CODES.get(error["code"], INVALID) != INVALID:
        return message
    for ours, theirs in COMPILED:
        if (found := ours.fullmatch(message)) is not None:
            return found.expand(theirs) if isinstance(theirs, str) else theirs(found)
    if error["code"] == ErrorCode.CONTEXT_LENGTH_EXCEEDED.value:
        return f"prompt is too long: {message}"
    return message


def _dotted(path: str) -> str:
    """messages[1].content[0] -> messages.1.content.0"""
    return path.replace("[", ".").replace("]", "")
