"""Tools for a model whose chat template has no words for them."""

from __future__ import annotations

import json

from tests.doubles.engine import ScriptedEngine, deltas

CHAT = "/v1/chat/completions"
HI = [{"role": "user", "content": "hi"}]
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
ANSWER = 'Well.<function_call>\n{"name": "f", "arguments": {"a": 1}}\n</function_call>'


def body(**fields) -> dict:
    return {"model": "demo", "messages": HI, "tools": [TOOL], **fields}


def test_the_prompt_describes_them_and_the_call_is_read(serve):
    engine = ScriptedEngine(deltas(ANSWER))
    message = serve(engine).post(CHAT, json=body()).json()["choices"][0]["message"]
    assert '{"name": "f", "parameters": {"type": "object"}}' in engine.requests[0].text
    assert message["content"] == "Well."
    (call,) = message["tool_calls"]
    assert (call["function"]["name"], json.loads(call["function"]["arguments"])) == ("f", {"a": 1})


def test_a_call_that_must_come_is_held_to_the_syntax(serve):
    engine = ScriptedEngine(deltas(ANSWER.removeprefix("Well.")))
    chosen = serve(engine).post(CHAT, json=body(tool_choice="required")).json()["choices"][0]
    assert chosen["finish_reason"] == "tool_calls"
    assert "<function_call>" in engine.requests[0].constraint.text


def test_results_come_back_as_text(serve):
    engine = ScriptedEngine(deltas("ok"))
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    history = [
        *HI,
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "sunny"},
    ]
    assert serve(engine).post(CHAT, json=body(messages=history)).status_code == 200
    assert "<function_result>\nf:\nsunny\n</function_result>" in engine.requests[0].text


def test_the_model_list_says_so(serve):
    assert serve(ScriptedEngine()).get("/v1/models/demo").json()["tool_parser"] == "generic"


def test_tools_that_may_not_be_called_are_not_described(serve):
    engine = ScriptedEngine(deltas(ANSWER))
    answer = serve(engine).post(CHAT, json=body(tool_choice="none")).json()
    message = answer["choices"][0]["message"]
    assert "You can call functions" not in engine.requests[0].text
    assert message["content"] == ANSWER
