"""A body that is wrong is refused with the field that is, before the engine sees anything."""

from __future__ import annotations

import codecs
import gzip
import json
from collections.abc import Iterator

import pytest

from tests.api.error_body import error_of
from tests.doubles.engine import ScriptedEngine, deltas

CHAT = "/v1/chat/completions"
HI = [{"role": "user", "content": "hi"}]
GOOD = {"model": "demo", "messages": HI}
TOOL = {"type": "function", "function": {"name": "f"}}
CALL = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
CALLING = {"role": "assistant", "tool_calls": [CALL]}
RESULT = {"role": "tool", "content": "1", "tool_call_id": "call_1"}


@pytest.mark.parametrize(
    ("body", "status", "code", "param"),
    [
        ({**GOOD, "model": "nope"}, 404, "model_not_found", "model"),
        ({"messages": HI}, 400, "missing_parameter", "model"),
        ({"model": "demo"}, 400, "missing_parameter", "messages"),
        ({**GOOD, "messages": []}, 400, "invalid_messages", "messages"),
        ({**GOOD, "messages": [{"role": "user"}]}, 400, "invalid_messages", "messages[0].content"),
        (
            {**GOOD, "messages": [{"role": "x", "content": ""}]},
            400,
            "invalid_messages",
            "messages[0].role",
        ),
        (
            {**GOOD, "messages": [*HI, {"role": "user", "content": [{"type": "image_url"}]}]},
            400,
            "unsupported_parameter",
            "messages[1].content[0]",
        ),
        (
            {**GOOD, "messages": [{"role": "user", "content": [1]}]},
            400,
            "invalid_messages",
            "messages[0].content[0]",
        ),
        ({**GOOD, "temperature": 2.1}, 400, "invalid_parameter", "temperature"),
        ({**GOOD, "temperature": "1"}, 400, "invalid_parameter", "temperature"),
        ({**GOOD, "top_p": -0.1}, 400, "invalid_parameter", "top_p"),
        ({**GOOD, "max_tokens": 0}, 400, "invalid_parameter", "max_tokens"),
        ({**GOOD, "max_tokens": 2**31}, 400, "invalid_parameter", "max_tokens"),
        ({**GOOD, "max_tokens": True}, 400, "invalid_parameter", "max_tokens"),
        (
            {**GOOD, "max_tokens": 1, "max_completion_tokens": 2},
            400,
            "invalid_parameter",
            "max_completion_tokens",
        ),
        ({**GOOD, "seed": 1.5}, 400, "invalid_parameter", "seed"),
        ({**GOOD, "seed": 2**63}, 400, "invalid_parameter", "seed"),
        ({**GOOD, "stop": ["a", ""]}, 400, "invalid_parameter", "stop[1]"),
        ({**GOOD, "stop": ["a"] * 17}, 400, "invalid_parameter", "stop"),
        ({**GOOD, "stop": [7]}, 400, "invalid_parameter", "stop[0]"),
        (
            {**GOOD, "stream_options": {"include_usage": True}},
            400,
            "invalid_parameter",
            "stream_options",
        ),
        ({**GOOD, "metadata": {"k": 1}}, 400, "invalid_parameter", "metadata.k"),
        (
            {**GOOD, "metadata": {f"{i}": "x" for i in range(17)}},
            400,
            "invalid_parameter",
            "metadata",
        ),
        ({**GOOD, "logit_bias": {"x": 1}}, 400, "invalid_parameter", "logit_bias.x"),
        ({**GOOD, "logit_bias": {"5": 101}}, 400, "invalid_parameter", "logit_bias.5"),
        ({**GOOD, "logit_bias": {str(2**31): 1}}, 400, "invalid_parameter", f"logit_bias.{2**31}"),
        ({**GOOD, "n": 0}, 400, "invalid_parameter", "n"),
        ({**GOOD, "n": 129}, 400, "invalid_parameter", "n"),
        ({**GOOD, "presence_penalty": 2.1}, 400, "invalid_parameter", "presence_penalty"),
        ({**GOOD, "frequency_penalty": -2.1}, 400, "invalid_parameter", "frequency_penalty"),
        ({**GOOD, "repetition_penalty": 0}, 400, "invalid_parameter", "repetition_penalty"),
        ({**GOOD, "top_k": -2}, 400, "invalid_parameter", "top_k"),
        ({**GOOD, "min_p": 1.1}, 400, "invalid_parameter", "min_p"),
        ({**GOOD, "min_tokens": 3, "max_tokens": 2}, 400, "invalid_parameter", "min_tokens"),
        ({**GOOD, "stop_token_ids": [-1]}, 400, "invalid_parameter", "stop_token_ids[0]"),
        ({**GOOD, "allowed_token_ids": []}, 400, "invalid_parameter", "allowed_token_ids"),
        ({**GOOD, "bad_words": [""]}, 400, "invalid_parameter", "bad_words[0]"),
        ({**GOOD, "top_logprobs": 2}, 400, "invalid_parameter", "top_logprobs"),
        ({**GOOD, "logprobs": False, "top_logprobs": 1}, 400, "invalid_parameter", "top_logprobs"),
        ({**GOOD, "logprobs": True, "top_logprobs": 21}, 400, "invalid_parameter", "top_logprobs"),
        ({**GOOD, "store": True}, 400, "unsupported_parameter", "store"),
        ({**GOOD, "service_tier": "flex"}, 400, "unsupported_parameter", "service_tier"),
        ({**GOOD, "service_tier": "best"}, 400, "invalid_parameter", "service_tier"),
        ({**GOOD, "modalities": ["text", "audio"]}, 400, "unsupported_parameter", "modalities[1]"),
        ({**GOOD, "prediction": {"type": "x"}}, 400, "invalid_parameter", "prediction.type"),
        ({**GOOD, "reasoning_effort": "low"}, 400, "unsupported_parameter", "reasoning_effort"),
        ({**GOOD, "documents": [{"a": 1}]}, 400, "unsupported_parameter", "documents"),
        (
            {**GOOD, "chat_template_kwargs": {"messages": []}},
            400,
            "unsupported_parameter",
            "chat_template_kwargs.messages",
        ),
        (
            {**GOOD, "continue_final_message": True},
            400,
            "invalid_parameter",
            "continue_final_message",
        ),
        ({**GOOD, "request_id": "a b"}, 400, "invalid_parameter", "request_id"),
        ({**GOOD, "best_of": 2}, 400, "unsupported_parameter", "best_of"),
        ({**GOOD, "chat_template": "x"}, 400, "unsupported_parameter", "chat_template"),
        (
            {**GOOD, "truncate_prompt_tokens": 0},
            400,
            "invalid_parameter",
            "truncate_prompt_tokens",
        ),
        ({**GOOD, "truncation_side": "left"}, 400, "invalid_parameter", "truncation_side"),
        ({**GOOD, "prompt_token_ids": []}, 400, "invalid_parameter", "prompt_token_ids"),
        (
            {**GOOD, "prompt_token_ids": [1], "documents": [{}]},
            400,
            "invalid_parameter",
            "documents",
        ),
        ({**GOOD, "tools": [TOOL]}, 400, "unsupported_parameter", "tools"),  # no parser
        ({**GOOD, "tools": [TOOL, TOOL]}, 400, "invalid_parameter", "tools[1].function.name"),
        (
            {**GOOD, "tools": [{"type": "custom", "custom": {"name": "f"}}]},
            400,
            "unsupported_parameter",
            "tools[0].type",
        ),
        (
            {**GOOD, "tools": [{**TOOL, "function": {"name": "a b"}}]},
            400,
            "invalid_parameter",
            "tools[0].function.name",
        ),
        ({**GOOD, "tool_choice": "required"}, 400, "invalid_parameter", "tool_choice"),
        ({**GOOD, "tools": [TOOL], "tool_choice": "any"}, 400, "invalid_parameter", "tool_choice"),
        (
            {**GOOD, "tools": [TOOL], "tool_choice": {**TOOL, "function": {"name": "g"}}},
            400,
            "invalid_parameter",
            "tool_choice.function.name",
        ),
        (
            {**GOOD, "messages": [{"role": "tool", "content": "1"}]},
            400,
            "invalid_messages",
            "messages[0].tool_call_id",
        ),
        (
            {
                **GOOD,
                "messages": [
                    {
                        "role": "assistant",
                        "tool_calls": [CALL | {"function": {"name": "f", "arguments": {}}}],
                    }
                ],
            },
            400,
            "invalid_messages",
            "messages[0].tool_calls[0].function.arguments",
        ),
        (
            {**GOOD, "messages": [CALLING, RESULT]},
            400,
            "unsupported_parameter",  # this template has no words for calls
            "messages[0].tool_calls",
        ),
        ({**GOOD, "messages": [*HI, RESULT]}, 400, "invalid_messages", "messages[1].role"),
        (
            {**GOOD, "messages": [CALLING, *HI]},
            400,
            "invalid_messages",
            "messages[0].tool_calls[0].id",
        ),
        (
            {**GOOD, "messages": [CALLING], "continue_final_message": True},
            400,
            "invalid_messages",
            "messages[0].tool_calls[0].id",
        ),
        (
            {**GOOD, "messages": [CALLING, {**RESULT, "tool_call_id": "call_2"}]},
            400,
            "invalid_messages",
            "messages[1].tool_call_id",
        ),
        (
            {**GOOD, "messages": [{**CALLING, "tool_calls": [{**CALL, "type": None}]}, RESULT]},
            400,
            "invalid_messages",
            "messages[0].tool_calls[0].type",
        ),
        ([], 400, "invalid_parameter", None),
    ],
)
def test_a_bad_body_is_refused_by_name(serve, body, status, code, param):
    engine = ScriptedEngine()
    response = serve(engine).post(CHAT, json=body)
    error = error_of(response)
    assert (response.status_code, error["code"], error["param"]) == (status, code, param)
    assert error["type"] == "invalid_request_error"
    assert not engine.requests


@pytest.mark.parametrize("path", [CHAT, f"{CHAT}/render", "/tokenize", "/chat/json"])
def test_every_route_with_messages_checks_the_history_of_tools(serve, path):
    body = {"model": "demo", "messages": [CALLING, {**RESULT, "tool_call_id": "x"}]}
    error = error_of(serve(ScriptedEngine()).post(path, json=body))
    assert (error["code"], error["param"]) == ("invalid_messages", "messages[1].tool_call_id")
    assert "'tool_call_id' of 'x' not found in 'tool_calls' of previous message" in error["message"]


@pytest.mark.parametrize("content", [b"", b"{", b'{"model": "demo",}', b'{"model": "\xff"}'])
def test_what_is_not_json_is_refused(serve, content):
    response = serve(ScriptedEngine()).post(CHAT, content=content)
    assert response.status_code == 400
    assert error_of(response)["code"] == "invalid_json"


@pytest.mark.parametrize("coding", ["gzip", "zstd", "gzip, br"])
def test_a_compressed_body_is_415_and_not_called_wrong_json(serve, coding):
    headers = {"content-encoding": coding}
    response = serve(ScriptedEngine()).post(CHAT, content=gzip.compress(b"{}"), headers=headers)
    error = error_of(response)
    assert (response.status_code, error["code"]) == (415, "unsupported_encoding")
    assert repr(coding) in error["message"]


@pytest.mark.parametrize("coding", ["Identity", ""])
def test_a_body_that_says_it_is_not_compressed_is_read(serve, coding):
    headers = {"content-encoding": coding}
    response = serve(ScriptedEngine(deltas("a"))).post(CHAT, json=GOOD, headers=headers)
    assert response.status_code == 200


def test_at_most_ten_problems_are_told_and_values_are_cut(serve):
    body = {**GOOD, "temperature": "x" * 5000, **{f"field{i}": 1 for i in range(30)}}
    error = error_of(serve(ScriptedEngine()).post(CHAT, json=body))
    assert "and 21 more" in error["message"]
    assert len(error["message"]) < 1500


def test_a_body_over_the_limit_is_413(serve):
    client = serve(ScriptedEngine(), max_request_size_mb=0.001)
    response = client.post(CHAT, json={**GOOD, "user": "x" * 2000})
    assert response.status_code == 413
    assert error_of(response)["code"] == "request_too_large"


def test_a_body_that_announces_too_much_is_not_waited_for(serve):
    def endless() -> Iterator[bytes]:
        yield b"{"
        pytest.fail("the rest is read")

    client = serve(ScriptedEngine(), max_request_size_mb=0.001)
    response = client.post(CHAT, content=endless(), headers={"content-length": "1001"})
    assert error_of(response)["code"] == "request_too_large"


def test_a_byte_order_mark_is_passed_over(serve):
    content = codecs.BOM_UTF8 + json.dumps(GOOD).encode()
    assert serve(ScriptedEngine(deltas("a"))).post(CHAT, content=content).status_code == 200
