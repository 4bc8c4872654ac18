"""A checkpoint's response template, from the model's facts to the answer."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tests.doubles.engine import FACTS, FixedCatalog, ScriptedEngine, deltas

CHAT = "/v1/chat/completions"
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
TOOL = {"type": "function", "function": {"name": "f", "parameters": SCHEMA}}
TEMPLATE = {
    "start_anchor": "<|bot|>",
    "fields": {
        "thinking": {"open": "<|think|>", "close": "<|done|>"},
        "tool_calls": {
            "open_pattern": r"<\|tool\|>(?P<name>[\w.]+)<\|args\|>",
            "close": "<|done|>",
            "content": "json",
            "repeats": True,
            "transform": {"function": {"name": "{name}", "arguments": "{content}"}},
        },
    },
}
UNKNOWN = {**TEMPLATE, "version": 2}
CALL = '<|tool|>f<|args|>{"a": 1}<|done|>'


def catalog(template: dict) -> FixedCatalog:
    words = "{% for m in messages %}{{ m.content }}{{ m.tool_calls }}{% endfor %}{{ tools }}"
    text = json.dumps(template)
    return FixedCatalog(facts=replace(FACTS, chat_template=words, response_template=text))


def chat(**fields) -> dict:
    hi = [{"role": "user", "content": "hi"}]
    return {"model": "demo", "messages": hi, "tools": [TOOL], **fields}


@pytest.mark.parametrize("stream", [False, True])
def test_the_answer_is_read_as_the_checkpoint_says(serve, stream):
    engine = ScriptedEngine(deltas(f"<|think|>hm<|done|>Well. {CALL}"))
    answer = serve(engine, catalog(TEMPLATE)).post(CHAT, json=chat(stream=stream)).text
    assert "<|" not in answer
    if stream:
        assert '"reasoning_content":"h' in answer.replace(" ", "")
        return
    message = json.loads(answer)["choices"][0]["message"]
    assert (message["reasoning_content"], message["content"].strip()) == ("hm", "Well.")
    (call,) = message["tool_calls"]
    assert (call["function"]["name"], json.loads(call["function"]["arguments"])) == ("f", {"a": 1})


def test_the_guide_is_made_of_the_same_description(serve):
    """Built in the sandbox's process, as all guides."""
    engine = ScriptedEngine(deltas(CALL))
    answer = serve(engine, catalog(TEMPLATE)).post(CHAT, json=chat(tool_choice="required"))
    assert answer.json()["choices"][0]["finish_reason"] == "tool_calls"
    guide = engine.requests[0].constraint.text
    assert "<|tool|>f<|args|>" in guide
    assert "<|think|>" in guide


@pytest.mark.parametrize(
    ("template", "parser", "reason"),
    [(TEMPLATE, "response_template", None), (UNKNOWN, None, "version: Input should be 1")],
)
def test_the_model_list_says_which_parsers_are_in_use(serve, template, parser, reason):
    model = serve(ScriptedEngine(), catalog(template)).get("/v1/models/demo").json()
    assert (model["tool_parser"], model["reasoning_parser"]) == (parser, parser)
    assert model["response_template"] == reason
