"""SDKs of OpenAI and Anthropic, of other versions and languages: a program runs unchanged."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fixtures.stack import HANG_S

PROGRAM = Path(__file__).parent / "python_sdk.py"
ANTHROPIC = Path(__file__).parent / "anthropic_sdk.py"


def run(command: list[str], folder: Path, **environment: str) -> dict:
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


def assert_it_worked(told: dict) -> None:
    assert told["models"] == ["demo", "gpt-4o-mini", "endless"]
    assert told["whole"][-1] in ".!?"
    assert told["whole"] == told["stream"] == told["helper"] == told["raw"]
    assert told["whole_tokens"] == told["stream_tokens"]
    assert told["raw_request_id"].startswith("req_")
    assert told["errors"] == {
        "model": ["NotFoundError", 404, "model_not_found", "model"],
        "range": ["BadRequestError", 400, "invalid_parameter", "temperature"],
        "stream": ["BadRequestError", 400, "context_length_exceeded", "max_tokens"],
    }


@pytest.mark.parametrize("major", [1, 2])
def test_older_python_sdks(stack, python_sdk, major, tmp_path):
    folder = python_sdk(f"openai{major}")
    command = [sys.executable, str(PROGRAM), f"{stack.url}/v1"]
    told = run(command, tmp_path, PYTHONPATH=str(folder))
    assert told["version"].startswith(f"{major}.")
    assert told["text_tokens"] == 5
    assert "content.delta" in told["helper_events"]
    assert_it_worked(told)


def test_the_python_sdk_of_our_own_environment(stack, tmp_path):
    assert_it_worked(run([sys.executable, str(PROGRAM), f"{stack.url}/v1"], tmp_path))


def test_the_javascript_sdk(stack, javascript_sdk):
    assert_it_worked(run(["node", "sdk.mjs", f"{stack.url}/v1"], javascript_sdk))


def test_zod_schemas_of_the_javascript_sdk(stack, javascript_sdk):
    told = run(["node", "structured.mjs", f"{stack.url}/v1"], javascript_sdk)
    assert told["is_person"]
    assert told["parsed"] == told["streamed"] == json.loads(told["content"])
    assert told["refused"] == [
        "UnprocessableEntityError",
        422,
        "invalid_schema",
        "response_format.json_schema.schema",
    ]


def test_an_agents_loop_of_the_javascript_sdk(stack, javascript_sdk):
    told = run(["node", "tools.mjs", f"{stack.url}/v1"], javascript_sdk)
    assert told["called"] == [
        ["get_weather", "Rome"],
        ["get_population", "Oslo"],
        ["get_weather", "Madrid"],
    ]
    sunny, people, again = told["answers"]
    assert "21" in sunny
    assert "7042" in people
    assert "21" in again
    assert (told["required"], told["arguments"]) == ("tool_calls", ["city"])


LOOP = [
    ["get_weather", {"city": "Rome"}, "21"],
    ["get_population", {"city": "Oslo"}, "7042"],
    ["get_weather", {"city": "Madrid"}, "21"],
]


def assert_messages_work(told: dict) -> None:
    assert told["whole"] == told["folded"]
    assert told["called"][0] == told["called"][1]
    assert told["called"][0]["stop_reason"] == "tool_use"
    assert len(set(told["text"])) == 1
    assert told["text"][0][-1] in ".!?"
    assert len(set(told["counted"])) == 1
    for (reason, name, given, end, said), (tool, city, words) in zip(
        told["loop"], LOOP, strict=True
    ):
        assert (reason, name, given, end) == ("tool_use", tool, city, "end_turn")
        assert words in said
    cities, reason, said = told["runner"]
    assert (cities, reason) == (["Rome"], "end_turn")
    assert "21" in said
    assert told["errors"]["model"] == ["NotFoundError", 404, "not_found_error", True]
    for name in ("range", "stream"):
        assert told["errors"][name] == ["BadRequestError", 400, "invalid_request_error", True]


def test_anthropics_python_sdk(stack, python_sdk, tmp_path):
    folder = python_sdk("anthropic2")
    told = run([sys.executable, str(ANTHROPIC), stack.url], tmp_path, PYTHONPATH=str(folder))
    assert told["version"].startswith("2.")
    assert {"text", "input_json", "content_block_stop", "message_stop"} & set(told["kinds"]) == {
        "input_json",
        "content_block_stop",
        "message_stop",
    }
    assert_messages_work(told)
    (message,) = told["errors"]["stream says"]
    assert re.match(r"prompt is too long: \d+ tokens > \d+ maximum$", message)
    with_header, with_other_words = told["cached"]
    assert with_header > 0.9
    assert with_other_words < 0.1


def test_anthropics_javascript_sdk(stack, javascript_sdk):
    assert_messages_work(run(["node", "anthropic.mjs", stack.url], javascript_sdk))
