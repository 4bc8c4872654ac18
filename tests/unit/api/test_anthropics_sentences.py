"""Errors of /v1/messages have Anthropic's sentences, by which Claude Code knows what to do."""

from __future__ import annotations

import re

import pytest

from proxy.api.anthropic.error_form import message_error

CONTEXT = "This model's maximum context length is 8192 tokens"
# What Claude Code 2.1.332 looks for.
KNOWN = [
    (
        "context_length_exceeded",
        f"{CONTEXT}, and the prompt has 21500, which leaves no room for an answer. Shorten the "
        "prompt.",
        r"^prompt is too long: 21500 tokens > 8192 maximum$",
    ),
    (
        "context_length_exceeded",
        f"{CONTEXT}, and the prompt has more than 8192. Shorten the prompt.",
        r"^prompt is too long: 8192 tokens > 8192 maximum$",
    ),
    (
        "context_length_exceeded",
        "This server accepts prompts of at most 100 tokens for this model, and the prompt has 200. "
        "Shorten the prompt.",
        r"^prompt is too long: 200 tokens > 100 maximum$",
    ),
    (
        "context_length_exceeded",
        f"{CONTEXT}. You asked for 9100 (8000 in the prompt, 1100 for the answer). Shorten the "
        "prompt, or ask for at most 192 new tokens.",
        r"input length and `max_tokens` exceed context limit: (\d+) \+ (\d+) > (\d+)",
    ),
    (
        "invalid_parameter",
        "Invalid value for 'max_tokens': 5000. This server allows at most 100 for the model 'd'.",
        r"^max_tokens: \d+ > (\d+), which is the maximum allowed number of output tokens for .+$",
    ),
    (
        "unsupported_parameter",
        "Unsupported parameter: 'messages[1].output_config' is not supported by this server",
        r"messages\.\d+\.output_config: Extra inputs are not permitted",
    ),
    (
        "missing_parameter",
        "Missing required parameter: 'messages[0].content[1].text'",
        r"^messages\.0\.content\.1\.text: Field required$",
    ),
]


@pytest.mark.parametrize(("code", "ours", "theirs"), KNOWN)
def test_an_error_has_the_sentence_that_claude_code_knows(code, ours, theirs):
    found = message_error({"error": {"code": code, "param": None, "message": ours}})
    assert re.search(theirs, found["error"]["message"]), found


@pytest.mark.parametrize("code", ["rate_limit_exceeded", "internal_error", "model_not_found"])
def test_other_errors_keep_their_words(code):
    words = "Missing required parameter: 'x'"
    found = message_error({"error": {"code": code, "param": None, "message": words}})
    assert found["error"]["message"] == words
