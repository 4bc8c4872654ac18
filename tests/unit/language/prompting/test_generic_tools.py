"""Chats with tools, as text for templates that have no words for them."""

from __future__ import annotations

import json

import pytest

from proxy.domain.request import Message
from proxy.domain.tools import Tool, ToolCall
from proxy.language.prompting.chat_template import tool_body
from proxy.language.prompting.generic_tools import with_written_calls, worded
from proxy.language.syntax.families import TOOL_FAMILIES, tool_family
from tests.unit.language.syntax.folding import answered, parser_of

TOOLS = [tool_body(Tool(name="f", description="does it", parameters={"type": "object"}))]
HI = Message(role="user", content="hi")
CALLS = (
    ToolCall(id="1", name="f", arguments='{"a": "ü"}'),
    ToolCall(id="2", name="g", arguments="{}"),
)
HISTORY = (
    HI,
    Message(role="assistant", content="well", tool_calls=CALLS),
    Message(role="tool", content="one", tool_call_id="1"),
    Message(role="tool", content="two", tool_call_id="2"),
    Message(role="user", content="and?"),
)


def test_tools_are_described_in_a_system_message():
    first, second = worded([HI], TOOLS)
    assert first.role == "system"
    assert (
        '{"name": "f", "description": "does it", "parameters": {"type": "object"}}' in first.content
    )
    assert "<function_call>" in first.content
    assert second == HI


def test_what_the_system_message_says_already_comes_first():
    first, second = worded([Message(role="system", content="Be brief."), HI], TOOLS)
    assert first.content.startswith("Be brief.\n\nYou can call functions.")
    assert second == HI


def test_calls_and_results_are_text():
    found = worded(HISTORY, [])
    assert [one.role for one in found] == ["user", "assistant", "user", "user", "user"]
    assert found[1].content == (
        'well\n<function_call>\n{"name": "f", "arguments": {"a": "ü"}}\n</function_call>\n'
        '<function_call>\n{"name": "g", "arguments": {}}\n</function_call>'
    )
    assert [one.content for one in found[2:]] == [
        "<function_result>\nf:\none\n</function_result>",
        "<function_result>\ng:\ntwo\n</function_result>",
        "and?",
    ]
    assert not any(one.tool_calls or one.tool_call_id for one in found)


def test_a_chat_without_tools_and_calls_stays_as_it_is():
    chat = (Message(role="system", content="x"), HI, Message(role="assistant", content="hello"), HI)
    assert worded(chat, []) == chat


@pytest.mark.parametrize(
    ("family", "text"),
    [
        (
            "granite",
            '<|tool_call|>[{"name": "f", "arguments": {"a": "ü"}}, {"name": "g", "arguments": {}}]',
        ),
        ("pythonic", '[f(a="ü"), g()]'),
    ],
)
def test_calls_are_written_as_the_family_writes_them(family, text):
    parser = tool_family(family)
    [_, answer, *rest] = with_written_calls(HISTORY, parser.call_syntax)
    assert (answer.content, answer.tool_calls) == (f"well{text}", ())
    assert tuple(rest) == HISTORY[2:]


@pytest.mark.parametrize("family", sorted(TOOL_FAMILIES))
def test_what_is_written_is_read_as_the_same_calls_by_the_family(family):
    syntax = tool_family(family).call_syntax
    if syntax is None or (text := syntax.written(CALLS)) is None:
        return
    assert answered(parser_of(family), [text]).calls == [
        {"name": one.name, "arguments": json.loads(one.arguments)} for one in CALLS
    ]


def test_calls_whose_syntax_is_unknown_stay_calls():
    assert with_written_calls(HISTORY, tool_family("glm45").call_syntax) == list(HISTORY)
