"""Unmodified clients of the Responses API: OpenAI's SDKs, and Vercel's AI SDK."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.compat.test_sdks import run

PROGRAM = Path(__file__).parent / "python_responses.py"
SUNNY, PEOPLE = "The temperature is 21 and the sky is sunny.", "The population is 7042."
LOOP = [
    ["get_weather", {"city": "Rome"}, SUNNY],
    ["get_population", {"city": "Oslo"}, PEOPLE],
    ["get_weather", {"city": "Madrid"}, SUNNY],
]
PERSON = {"name": "Tom", "age": 31}
ERRORS = {
    "model": ["NotFoundError", 404, "model_not_found", "model"],
    "range": ["BadRequestError", 400, "invalid_parameter", "temperature"],
    "previous": ["NotFoundError", 404, "response_not_found", "previous_response_id"],
    "tool": ["BadRequestError", 400, "unsupported_parameter", "tools"],
}


@pytest.mark.parametrize("major", [1, 2, None])
def test_responses_of_the_python_sdks(stack, python_sdk, major, tmp_path):
    """None: the version of our own environment."""
    folder = "" if major is None else str(python_sdk(f"openai{major}"))
    command = [sys.executable, str(PROGRAM), f"{stack.url}/v1"]
    told = run(command, tmp_path, PYTHONPATH=folder)
    assert major is None or told["version"].startswith(f"{major}.")
    whole, streamed, folded = told["responses"]
    assert whole == streamed == folded
    assert told["read"]
    assert len(set(told["texts"])) == 1
    assert told["parsed"] == [PERSON, PERSON]
    called, called_in_stream, kinds = told["calls"]
    assert called == called_in_stream
    assert "response.function_call_arguments.done" in kinds
    assert told["loops"] == [LOOP, LOOP]
    assert told["background"] == {
        "first": "queued",
        "status": "completed",
        "folded": True,
        "text": told["texts"][0],
        "numbers": True,
        "later": [5, True],
        "resumed": [2, 3],
        "cancelled": ["cancelled", "cancelled"],
    }
    assert told["kept"] == {
        "listed": True,
        "gone": [404, "response_not_found"],
        "incomplete": ["incomplete", "max_output_tokens"],
    }
    assert told["errors"] == {
        **ERRORS,
        "stream": ["BadRequestError", 400, "context_length_exceeded", "input"],
    }
    if major == 1:
        return
    assert len(set(told["counted"])) == 1
    assert told["compacted"] == ["response.compaction", ["compaction"], "completed"]
    assert told["socket"] == {
        "text": told["texts"][0],
        "continued": ["completed", True],
        "wrong": ["error", "model_not_found", 404],
    }


def test_responses_of_the_javascript_sdk(stack, javascript_sdk):
    told = run(["node", "responses.mjs", f"{stack.url}/v1"], javascript_sdk)
    assert len(set(told["texts"])) == len(set(told["tokens"])) == 1
    assert told["parsed"] == PERSON
    assert told["loop"] == LOOP
    assert told["listed"] == 45
    assert told["queued"] == ["queued", True, "completed"]
    assert told["errors"] == ERRORS


def test_the_ai_sdk(stack, javascript_sdk):
    told = run(["node", "ai.mjs", f"{stack.url}/v1"], javascript_sdk)
    assert told["whole"] == told["streamed"]
    assert told["finish"] == ["stop", "stop"]
    assert len(set(told["tokens"])) == 1
    assert told["called"] == [[name, given["city"]] for name, given, _ in LOOP]
    assert told["answers"] == [said for _, _, said in LOOP]
    assert told["references"] > 0
    assert told["person"] == PERSON
    assert told["refused"] == ["AI_APICallError", 404, "model_not_found"]
