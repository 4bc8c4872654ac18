"""A body that is wrong is refused with the field that is, before the engine sees anything."""

from __future__ import annotations

import codecs
import gzip
import json
from collections.abc import Iterator

import pytest

from tests.api.formats import error_of
from tests.doubles.engine import ScriptedEngine, deltas

CHAT = "/v1/chat/completions"
HI = [{"role": "user", "content": "hi"}]
GOOD = {"model": "demo", "messages": HI}
TOOL = {"type": "function", "function": {"name": "f"}}
CALL = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
CALLING = {"role": "assistant", "tool_calls": [CALL]}
RESULT = {"role": "tool", "content": "1", "tool_call_id": "call_1"}


# Code of the error -> fields beside those of GOOD, and the field that the error names.
REFUSED = {
    "invalid_messages": [
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
        ({"messages": [{"role": "x", "content": ""}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": [1]}]}, "messages[0].content[0]"),
        ({"messages": [{"role": "tool", "content": "1"}]}, "messages[0].tool_call_id"),
        (
            {
                "messages": [
                    {
                        "role": "assistant",
                        "tool_calls": [CALL | {"function": {"name": "f", "arguments": {}}}],
                    }
                ]
            },
            "messages[0].tool_calls[0].function.arguments",
        ),
        ({"messages": [CALLING], "continue_final_message": True}, "messages[0].tool_calls[0].id"),
        (
            {"messages": [{**CALLING, "tool_calls": [{**CALL, "type": None}]}, RESULT]},
            "messages[0].tool_calls[0].type",
        ),
    ],
    "unsupported_parameter": [
        ({"store": True}, "store"),
        ({"service_tier": "flex"}, "service_tier"),
        ({"modalities": ["text", "audio"]}, "modalities[1]"),
        ({"documents": [{"a": 1}]}, "documents"),
        ({"chat_template_kwargs": {"messages": []}}, "chat_template_kwargs.messages"),
        ({"best_of": 2}, "best_of"),
        ({"chat_template": "x"}, "chat_template"),
    ],
    "invalid_parameter": [
        ({"temperature": 2.1}, "temperature"),
        ({"temperature": "1"}, "temperature"),
        ({"top_p": -0.1}, "top_p"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": 2**31}, "max_tokens"),
        ({"max_tokens": True}, "max_tokens"),
        ({"max_tokens": 1, "max_completion_tokens": 2}, "max_completion_tokens"),
        ({"seed": 1.5}, "seed"),
        ({"seed": 2**63}, "seed"),
        ({"stop": ["a", ""]}, "stop[1]"),
        ({"stop": ["a"] * 17}, "stop"),
        ({"stop": [7]}, "stop[0]"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"metadata": {"k": 1}}, "metadata.k"),
        ({"metadata": {f"{i}": "x" for i in range(17)}}, "metadata"),
        ({"logit_bias": {"x": 1}}, "logit_bias.x"),
        ({"logit_bias": {"5": 101}}, "logit_bias.5"),
        ({"logit_bias": {str(2**31): 1}}, f"logit_bias.{2**31}"),
        ({"n": 0}, "n"),
        ({"n": 129}, "n"),
        ({"presence_penalty": 2.1}, "presence_penalty"),
        ({"frequency_penalty": -2.1}, "frequency_penalty"),
        ({"repetition_penalty": 0}, "repetition_penalty"),
        ({"top_k": -2}, "top_k"),
        ({"min_p": 1.1}, "min_p"),
        ({"min_tokens": 3, "max_tokens": 2}, "min_tokens"),
        ({"stop_token_ids": [-1]}, "stop_token_ids[0]"),
        ({"allowed_token_ids": []}, "allowed_token_ids"),
        ({"bad_words": [""]}, "bad_words[0]"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"logprobs": False, "top_logprobs": 1}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"service_tier": "best"}, "service_tier"),
        ({"prediction": {"type": "x"}}, "prediction.type"),
        ({"continue_final_message": True}, "continue_final_message"),
        ({"request_id": "a b"}, "request_id"),
        ({"truncate_prompt_tokens": 0}, "truncate_prompt_tokens"),
        ({"truncation_side": "left"}, "truncation_side"),
        ({"prompt_token_ids": []}, "prompt_token_ids"),
        ({"prompt_token_ids": [1], "documents": [{}]}, "documents"),
        ({"tools": [TOOL, TOOL]}, "tools[1].function.name"),
        ({"tools": [{**TOOL, "function": {"name": "a b"}}]}, "tools[0].function.name"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tools": [TOOL], "tool_choice": "any"}, "tool_choice"),
        (
            {"tools": [TOOL], "tool_choice": {**TOOL, "function": {"name": "g"}}},
            "tool_choice.function.name",
        ),
    ],
}


@pytest.mark.parametrize(
    ("fields", "code", "param"),
    [(fields, code, param) for code, rows in REFUSED.items() for fields, param in rows],
)
def test_a_bad_field_is_refused_by_name(idle, fields, code, param):
    response = idle.post(CHAT, json={**GOOD, **fields})
    error = error_of(response)
    assert (response.status_code, error["code"], error["param"]) == (400, code, param)
    assert error["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    ("body", "status", "code", "param"),
    [
        ({**GOOD, "model": "nope"}, 404, "model_not_found", "model"),
        ({"messages": HI}, 400, "missing_parameter", "model"),
        ({"model": "demo"}, 400, "missing_parameter", "messages"),
        ([], 400, "invalid_parameter", None),
    ],
)
def test_a_bad_body_is_refused_by_name(idle, body, status, code, param):
    response = idle.post(CHAT, json=body)
    error = error_of(response)
    assert (response.status_code, error["code"], error["param"]) == (status, code, param)


@pytest.mark.parametrize("path", [CHAT, f"{CHAT}/render", "/tokenize", "/chat/json"])
def test_every_route_with_messages_checks_the_history_of_tools(idle, path):
    body = {"model": "demo", "messages": [CALLING, {**RESULT, "tool_call_id": "x"}]}
    error = error_of(idle.post(path, json=body))
    assert (error["code"], error["param"]) == ("invalid_messages", "messages[1].tool_call_id")
    assert "'tool_call_id' of 'x' not found in 'tool_calls' of previous message" in error["message"]


@pytest.mark.parametrize("coding", ["gzip", "zstd", "gzip, br"])
def test_a_compressed_body_is_415_and_not_called_wrong_json(idle, coding):
    headers = {"content-encoding": coding}
    response = idle.post(CHAT, content=gzip.compress(b"{}"), headers=headers)
    error = error_of(response)
    assert (response.status_code, error["code"]) == (415, "unsupported_encoding")
    assert repr(coding) in error["message"]


@pytest.mark.parametrize("coding", ["Identity", ""])
def test_a_body_that_says_it_is_not_compressed_is_read(serve, coding):
    headers = {"content-encoding": coding}
    response = serve(ScriptedEngine(deltas("a"))).post(CHAT, json=GOOD, headers=headers)
    assert response.status_code == 200


@pytest.mark.parametrize(
    ("fields", "meant"),
    [
        ({"temprature": 1}, "temperature"),
        ({"maxTokens": 5}, "max_tokens"),
        ({"stream": True, "stream_options": {"include_usge": True}}, "include_usage"),
        ({"messages": [{"role": "user", "contnt": "hi"}]}, "content"),
        ({"tools": [{**TOOL, "function": {"name": "f", "paramters": {}}}]}, "parameters"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"schma": {}}}},
            "schema",
        ),
        ({"num_ctx": 5}, None),
        ({"x" * 100_000: 5}, None),
        ({"max_new_tokens": 5}, None),  # which has advice of its own
    ],
)
def test_a_misspelt_field_is_told_what_it_resembles(idle, fields, meant):
    error = error_of(idle.post(CHAT, json={**GOOD, **fields}))
    said = "did you mean" if meant is None else f"did you mean '{meant}'?"
    assert (said in error["message"]) is (meant is not None)
    assert len(error["message"]) < 1000


def test_at_most_ten_problems_are_told_and_values_are_cut(idle):
    body = {**GOOD, "temperature": "x" * 5000, **{f"field{i}": 1 for i in range(30)}}
    error = error_of(idle.post(CHAT, json=body))
    assert "and 21 more" in error["message"]
    assert len(error["message"]) < 1500


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
