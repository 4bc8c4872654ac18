"""Requests and answers as OpenTelemetry's messages."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

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
from proxy.domain.request import (
    ChatPrompt,
    GenerationRequest,
    Message,
    Prompt,
    PromptBatch,
    TextPrompt,
    TokenPrompt,
)
from proxy.domain.tools import ToolCall
from proxy.telemetry.kept_content import HeldBytes
from proxy.telemetry.traces.messages import (
    MOST_BYTES,
    MOST_CHARACTERS,
    OVERHEAD,
    TracedContent,
)

CALL = ToolCall(id="call_1", name="f", arguments="{}")
CALL_PART = {"type": "tool_call", "id": "call_1", "name": "f", "arguments": "{}"}
HI = Message(role="user", content="hi")


def text(content: str) -> dict[str, str]:
    return {"type": "text", "content": content}


def traced(prompt: Prompt, *events: OutputEvent, held: HeldBytes | None = None) -> TracedContent:
    found = TracedContent(held or HeldBytes(10 * MOST_BYTES))
    found.ask(GenerationRequest(id="1", model="demo", prompt=prompt))
    for event in events:
        found.add(event)
    return found


def chat(*messages: Message, **more: Any) -> ChatPrompt:
    return ChatPrompt(messages=messages, **more)


def content(prompt: Prompt, *events: OutputEvent, is_answered: bool = True) -> dict:
    """The attributes, their JSON read."""
    found = traced(prompt, *events).attributes(is_answered=is_answered)
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
    assert content(chat(HI), *events)["output"] == [
        {
            "role": "assistant",
            "parts": [{"type": "reasoning", "content": "Let me see."}, CALL_PART],
            "finish_reason": "tool_calls",
        },
        {"role": "assistant", "parts": [text("Good day")], "finish_reason": ""},
    ]
    assert content(chat(HI), *events, is_answered=False)["output"] == []


def test_the_newest_of_long_conversations_are_kept():
    words = ["older", "old" * MOST_CHARACTERS, "new"]
    found = content(chat(*(Message(role="user", content=each) for each in words)))
    kept = [message["parts"][0]["content"] for message in found["input"]]
    assert kept == [words[1][: len(kept[0])], "new"]
    assert MOST_CHARACTERS - 1000 < len(kept[0]) < MOST_CHARACTERS
    assert found["triton_openai.content_cut"] is True


@pytest.mark.parametrize(
    "prompt",
    [
        PromptBatch(prompts=(TextPrompt(text=""),) * 10_000),
        chat(*[replace(HI, content="")] * 10_000),
        chat(replace(HI, parts=(None,) * 10_000)),
        chat(replace(HI, tool_calls=(replace(CALL, id="i" * 60_000),) * 1_000)),
        chat(replace(HI, tool_calls=(replace(CALL, name="n" * 60_000),) * 10)),
    ],
    ids=["prompts", "messages", "parts", "ids", "names"],
)
def test_what_a_caller_sends_is_not_multiplied(prompt):
    found = content(prompt)
    assert len(json.dumps(found["input"])) < 2 * MOST_CHARACTERS
    assert found["triton_openai.content_cut"] is True


def test_nothing_of_a_request_that_was_refused_before_it_was_one_of_a_model():
    assert TracedContent(HeldBytes(MOST_BYTES)).attributes(is_answered=False) == {}


@pytest.mark.parametrize(
    ("held", "why"), [(2 * MOST_BYTES, "too_large"), (OVERHEAD + 10, "overloaded")]
)
def test_what_would_take_too_much_memory_is_lost_and_its_bytes_are_given_back(held, why):
    bound = HeldBytes(held)
    found = traced(chat(HI), *[TextDelta("x" * 400_000)] * 3, held=bound)
    assert found.attributes(is_answered=True) == {"triton_openai.content_lost": why}
    assert 0 < bound.bytes <= MOST_BYTES
    found.give_back()
    assert bound.bytes == 0


SHOWN = [
    (Message(role="system", content="You."), [text("You.")]),
    (Message(role="user", content="", parts=("see", None)), [text("see"), {"type": "image"}]),
    (
        Message(role="assistant", content="ok", reasoning="hm", tool_calls=(CALL,)),
        [{"type": "reasoning", "content": "hm"}, text("ok"), CALL_PART],
    ),
    (Message(role="assistant", content=None, tool_calls=(CALL,)), [CALL_PART]),
    (
        Message(role="tool", content="2", tool_call_id="call_1"),
        [{"type": "tool_call_response", "id": "call_1", "response": "2"}],
    ),
]


def test_messages_of_a_chat():
    assert content(chat(*(message for message, _ in SHOWN)))["input"] == [
        {"role": message.role, "parts": parts} for message, parts in SHOWN
    ]


def test_prompts_without_a_chat_are_a_users_and_token_ids_are_left_out():
    batch = PromptBatch(prompts=(TextPrompt(text="a"), TokenPrompt(ids=(1,)), TextPrompt(text="b")))
    assert content(batch)["input"] == [{"role": "user", "parts": [text(each)]} for each in "ab"]
