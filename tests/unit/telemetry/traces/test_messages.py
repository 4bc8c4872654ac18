"""Requests and answers as OpenTelemetry's messages."""

from __future__ import annotations

import json

import pytest

from proxy.domain.timeline import Exchange
from proxy.telemetry.traces.messages import MOST_CHARACTERS, content_of

CALL = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
CALL_PART = {"type": "tool_call", "id": "call_1", "name": "f", "arguments": "{}"}


def text(content: str) -> dict[str, str]:
    return {"type": "text", "content": content}


def content(fields: object, answer: object = None) -> dict:
    """The attributes, their JSON read; of an answer as a whole or a list of events."""
    if isinstance(answer, list):
        events = [f"data: {json.dumps(event)}" for event in answer]
        said = "\n\n".join([*events, "data: [DONE]", ""])
    else:
        said = json.dumps(answer)
    exchange = Exchange(body=json.dumps(fields).encode(), answer=said.encode())
    found = content_of(exchange)
    return {
        name.rpartition(".")[0].rpartition(".")[2] if name.startswith("gen_ai") else name: (
            json.loads(value) if isinstance(value, str) else value
        )
        for name, value in found.items()
    }


def delta(index: int = 0, finish: str | None = None, **said: object) -> dict:
    return {"choices": [{"index": index, "delta": said, "finish_reason": finish}]}


def test_a_chat_with_tools_and_a_picture():
    messages = [
        {"role": "system", "content": "Be short."},
        {"role": "user", "content": [{"type": "text", "text": "What?"}, {"type": "image_url"}]},
        {"role": "assistant", "content": None, "reasoning": "Hm.", "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "call_1", "content": "12 degrees"},
    ]
    assert content({"messages": messages})["input"] == [
        {"role": "system", "parts": [text("Be short.")]},
        {"role": "user", "parts": [text("What?"), {"type": "image_url"}]},
        {"role": "assistant", "parts": [{"type": "reasoning", "content": "Hm."}, CALL_PART]},
        {
            "role": "tool",
            "parts": [{"type": "tool_call_response", "id": "call_1", "response": "12 degrees"}],
        },
    ]


@pytest.mark.parametrize("prompt", ["one", ["one", "two"], [1, 2], None])
def test_prompts_of_completions(prompt):
    texts = [prompt] if isinstance(prompt, str) else prompt or []
    expected = [{"role": "user", "parts": [text(each)]} for each in texts if each not in (1, 2)]
    assert content({"prompt": prompt})["input"] == expected


def test_a_stream_of_two_choices_is_joined():
    function = {"name": "f", "arguments": "{"}
    events = [
        delta(reasoning="Let me ", role="assistant"),
        delta(1, content="Good "),
        delta(reasoning="see."),
        delta(tool_calls=[{"index": 0, "id": "call_1", "function": function}]),
        delta(tool_calls=[{"index": 0, "function": {"arguments": "}"}}]),
        delta(1, "stop", content="day"),
        delta(0, "tool_calls"),
        {"choices": [], "usage": {"prompt_tokens": 1}},
    ]
    assert content({}, events)["output"] == [
        {
            "role": "assistant",
            "parts": [{"type": "reasoning", "content": "Let me see."}, CALL_PART],
            "finish_reason": "tool_calls",
        },
        {"role": "assistant", "parts": [text("Good day")], "finish_reason": "stop"},
    ]


def test_whole_answers():
    chat = {"choices": [{"message": {"content": "hi"}, "finish_reason": "stop"}]}
    completion = {"choices": [{"text": "hi", "finish_reason": "stop"}]}
    expected = [{"role": "assistant", "parts": [text("hi")], "finish_reason": "stop"}]
    assert content({}, chat)["output"] == content({}, completion)["output"] == expected


def test_the_newest_of_long_conversations_are_kept():
    words = ["older", "old" * MOST_CHARACTERS, "new"]
    messages = [{"role": "user", "content": each} for each in words]
    found = content({"messages": messages})
    kept = [message["parts"][0]["content"] for message in found["input"]]
    assert kept == [words[1][: len(kept[0])], "new"]
    assert MOST_CHARACTERS - 1000 < len(kept[0]) < MOST_CHARACTERS
    assert found["triton_openai.content_cut"] is True


@pytest.mark.parametrize(
    "fields",
    [
        {"prompt": [""] * 300_000},
        {"messages": [{}] * 300_000},
        {"messages": [{"role": "r" * 900_000, "content": [{"type": "t" * 90_000}] * 10}]},
        {"messages": [{"content": [{}] * 300_000}]},
        {"messages": [{"tool_calls": [{"id": "i" * 90_000, "function": {}}] * 10}]},
    ],
    ids=["prompts", "messages", "names", "parts", "calls"],
)
def test_what_a_caller_sends_is_not_multiplied(fields):
    found = content(fields)
    assert len(json.dumps(found["input"])) < 2 * MOST_CHARACTERS
    assert found["triton_openai.content_cut"] is True


@pytest.mark.parametrize("body", [b"{", b"[]", b'{"store": false, "prompt": "secret"}'])
def test_nothing_of_what_may_not_be_kept(body):
    assert content_of(Exchange(body=body, answer=b"{}")) == {}


def test_why_it_is_missing():
    assert content_of(Exchange(lost="too_large")) == {"triton_openai.content_lost": "too_large"}


@pytest.mark.parametrize(
    "fields",
    [
        {"messages": "x"},
        {"messages": [1, {"role": 3, "content": {"a": 1}}, {"tool_calls": [{}, 1]}]},
        {"messages": [{"role": "tool", "content": [1, None, {"text": 2}]}], "prompt": {"a": 1}},
    ],
)
def test_bodies_that_were_refused(fields):
    json.dumps(content(fields)["input"])
