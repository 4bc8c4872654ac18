"""Requests and answers as OpenTelemetry's messages."""

from __future__ import annotations

import json

import pytest

from proxy.domain.events import (
    Finished,
    OutputEvent,
    ReasoningDelta,
    TextDelta,
    ToolCallArguments,
    ToolCallStarted,
)
from proxy.domain.output import FinishReason, Usage
from proxy.telemetry.kept_content import HeldBytes
from proxy.telemetry.traces.messages import (
    MOST_BYTES,
    MOST_CHARACTERS,
    OVERHEAD,
    TracedContent,
)

CALL = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
CALL_PART = {"type": "tool_call", "id": "call_1", "name": "f", "arguments": "{}"}


def text(content: str) -> dict[str, str]:
    return {"type": "text", "content": content}


def traced(body: bytes, *events: OutputEvent, held: HeldBytes | None = None) -> TracedContent:
    found = TracedContent(held or HeldBytes(10 * MOST_BYTES))
    found.add_body(body)
    for event in events:
        found.add(event)
    return found


def content(fields: object, *events: OutputEvent, is_answered: bool = True) -> dict:
    """The attributes, their JSON read."""
    found = traced(json.dumps(fields).encode(), *events).attributes(is_answered=is_answered)
    return {
        name.rpartition(".")[0].rpartition(".")[2] if name.startswith("gen_ai") else name: (
            json.loads(value) if isinstance(value, str) else value
        )
        for name, value in found.items()
    }


def test_an_answer_of_two_choices_is_joined_as_far_as_it_came():
    events = (
        ReasoningDelta("Let me "),
        TextDelta("Good ", choice=1),
        ReasoningDelta("see."),
        ToolCallStarted(index=0, id="call_1", name="f"),
        ToolCallArguments(index=0, fragment="{"),
        ToolCallArguments(index=0, fragment="}"),
        TextDelta("day", choice=1),
        Finished(reason=FinishReason.TOOL_CALLS, usage=Usage()),
    )
    assert content({}, *events)["output"] == [
        {
            "role": "assistant",
            "parts": [{"type": "reasoning", "content": "Let me see."}, CALL_PART],
            "finish_reason": "tool_calls",
        },
        {"role": "assistant", "parts": [text("Good day")], "finish_reason": ""},
    ]
    assert content({}, *events, is_answered=False)["output"] == []


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
        {"prompt": [""] * 100_000},
        {"messages": [{}] * 100_000},
        {"messages": [{"role": "r" * 90_000, "content": [{"type": "t" * 60_000}] * 10}]},
        {"messages": [{"content": [{}] * 100_000}]},
        {"messages": [{"tool_calls": [{"id": "i" * 60_000, "function": {}}] * 10}]},
    ],
    ids=["prompts", "messages", "names", "parts", "calls"],
)
def test_what_a_caller_sends_is_not_multiplied(fields):
    found = content(fields)
    assert len(json.dumps(found["input"])) < 2 * MOST_CHARACTERS
    assert found["triton_openai.content_cut"] is True


@pytest.mark.parametrize("body", [b"{", b"[]", b'{"store": false, "prompt": "secret"}'])
def test_nothing_of_what_may_not_be_kept(body):
    assert traced(body).attributes(is_answered=True) == {}


@pytest.mark.parametrize(
    ("held", "why"), [(2 * MOST_BYTES, "too_large"), (OVERHEAD + 10, "overloaded")]
)
def test_what_would_take_too_much_memory_is_lost_and_its_bytes_are_given_back(held, why):
    bound = HeldBytes(held)
    found = traced(b"{}", *[TextDelta("x" * 400_000)] * 3, held=bound)
    assert found.attributes(is_answered=True) == {"triton_openai.content_lost": why}
    assert 0 < bound.bytes <= MOST_BYTES
    found.give_back()
    assert bound.bytes == 0


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


def test_blocks_of_anthropics_messages():
    blocks = [
        {"type": "thinking", "thinking": "hm", "signature": "s"},
        {"type": "tool_use", "id": "c", "name": "f", "input": {"x": 1}},
    ]
    result = {"type": "tool_result", "tool_use_id": "c", "content": [{"type": "text", "text": "2"}]}
    messages = [
        {"role": "assistant", "content": blocks},
        {"role": "user", "content": [result]},
    ]
    told = content({"system": "You.", "messages": messages})["input"]
    assert told == [
        {"role": "system", "parts": [text("You.")]},
        {
            "role": "assistant",
            "parts": [
                {"type": "reasoning", "content": "hm"},
                {"type": "tool_call", "id": "c", "name": "f", "arguments": '{"x":1}'},
            ],
        },
        {"role": "user", "parts": [{"type": "tool_call_response", "id": "c", "response": "2"}]},
    ]


def test_items_of_responses():
    items = [
        {"role": "user", "content": [{"type": "input_text", "text": "hi"}]},
        {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": '{"x":1}'},
        {"type": "function_call_output", "call_id": "c", "output": "2"},
    ]
    told = content({"instructions": "Be brief.", "input": items})["input"]
    call = {"type": "tool_call", "id": "c", "name": "f", "arguments": '{"x":1}'}
    result = {"type": "tool_call_response", "id": "c", "response": "2"}
    assert told == [
        {"role": "system", "parts": [text("Be brief.")]},
        {"role": "user", "parts": [text("hi")]},
        {"role": "assistant", "parts": [{"type": "reasoning", "content": "hm"}]},
        {"role": "assistant", "parts": [call]},
        {"role": "tool", "parts": [result]},
    ]
    assert content({"input": "hi"})["input"] == [{"role": "user", "parts": [text("hi")]}]
