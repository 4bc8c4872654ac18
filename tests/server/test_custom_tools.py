"""Custom tools with the demo model over the whole stack, as OpenAI's SDK asks for them."""

from __future__ import annotations

import re

import openai
import pytest
from lark import Lark

from tests.fixtures.custom_tools import APPLY_PATCH, PATCH

HI = [{"role": "user", "content": "What is the weather in Rome?"}]
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Get the current weather in a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "description": "Name of the city"}},
            "required": ["city"],
        },
    },
}
CODE = r'(?:"[A-Z]{2}"|\\[0-9]\n)-[a-d]{3}'


def custom(name: str, syntax: str | None = None, definition: str = "") -> dict:
    grammar = {"syntax": syntax, "definition": definition}
    form = {"type": "text"} if syntax is None else {"type": "grammar", "grammar": grammar}
    return {"type": "custom", "custom": {"name": name, "description": "A code", "format": form}}


CODES = custom("find_code", "regex", CODE)


def asked(client, **fields):
    given = {"model": "demo", "messages": HI, "tools": [CODES], "max_tokens": 200, "seed": 3}
    return client.chat.completions.create(**given | fields)


@pytest.mark.parametrize(
    "choice",
    ["required", {"type": "custom", "custom": {"name": "find_code"}}],
    ids=["any", "named"],
)
def test_a_call_conforms_to_its_regular_expression(client, choice):
    for seed in range(4):
        answer = asked(client, tool_choice=choice, seed=seed, temperature=2.0).choices[0]
        (call,) = answer.message.tool_calls[:1]
        assert (call.type, call.custom.name) == ("custom", "find_code")
        assert re.fullmatch(CODE, call.custom.input), call.custom.input
        assert answer.finish_reason == ("tool_calls" if choice == "required" else "stop")


def test_a_stream_adds_up_to_the_same(client):
    whole = asked(client, tool_choice="required", temperature=0).choices[0].message.tool_calls
    parts: dict[int, list] = {}
    with asked(client, tool_choice="required", temperature=0, stream=True) as stream:
        for chunk in stream:
            for part in chunk.choices[0].delta.tool_calls or ():
                parts.setdefault(part.index, []).append(part)
    assert len(parts) == len(whole)
    for call, pieces in zip(whole, parts.values(), strict=True):
        assert (pieces[0].type, pieces[0].custom["name"]) == ("custom", "find_code")
        assert "".join(piece.custom["input"] for piece in pieces) == call.custom.input


def test_the_stream_helper_takes_the_chunks(client):
    """It knows no custom tools, so it puts together what it gets."""
    given = {"model": "demo", "messages": HI, "tools": [CODES], "tool_choice": "required"}
    stream = client.chat.completions.create(**given, max_tokens=200, temperature=0, stream=True)
    state = openai.lib.streaming.chat.ChatCompletionStreamState()
    for chunk in stream:
        state.handle_chunk(chunk)
    (call,) = state.current_completion_snapshot.choices[0].message.tool_calls[:1]
    assert re.fullmatch(CODE, call.model_extra["custom"]["input"])


def test_calls_of_functions_may_stand_beside_them(client):
    found = set()
    for seed in range(12):
        answer = asked(
            client, tools=[CODES, WEATHER], tool_choice="required", seed=seed, temperature=2.0
        )
        for call in answer.choices[0].message.tool_calls:
            found.add(call.type)
            if call.type == "custom":
                assert re.fullmatch(CODE, call.custom.input)
    assert found == {"custom", "function"}


def test_an_agent_loop_of_three_turns(client):
    messages: list = list(HI)
    inputs = []
    for turn in range(3):
        choice = asked(client, messages=messages, tool_choice="required", seed=turn).choices[0]
        messages.append(choice.message)
        for call in choice.message.tool_calls:
            inputs.append(call.custom.input)
            messages.append({"role": "tool", "tool_call_id": call.id, "content": f"item {turn}"})
    assert len(inputs) >= 3
    assert all(re.fullmatch(CODE, one) for one in inputs)
    said = asked(client, messages=messages, tool_choice="none").choices[0].message
    assert not said.tool_calls


def test_a_call_once_begun_conforms_where_the_model_may_also_write_text(client):
    answer = asked(client, tool_choice="auto", tools=[CODES, WEATHER])
    for call in answer.choices[0].message.tool_calls or ():
        assert call.type == "function" or re.fullmatch(CODE, call.custom.input)


def test_a_patch_as_codex_asks_for_one(client):
    """With short lines: the model hardly ever ends a line by itself, or a patch."""
    short = APPLY_PATCH.replace("/(.+)/", "/[ -~]{1,9}/").replace("/(.*)/", "/[ -~]{0,9}/")
    patches = custom("apply_patch", "lark", short)
    lark = Lark(APPLY_PATCH.replace("/(.*)/", "/(.+)/?"))
    for seed in (0, 3, 1, 2, 4, 5, 6, 7):  # with the second one it ends a patch
        answer = asked(
            client,
            tools=[patches],
            tool_choice="required",
            parallel_tool_calls=False,
            seed=seed,
            temperature=2.0,
            max_tokens=400,
        )
        (call,) = answer.choices[0].message.tool_calls
        assert call.custom.input.startswith("*** Begin Patch\n")
        if answer.choices[0].finish_reason == "tool_calls":
            assert PATCH.fullmatch(call.custom.input)
            lark.parse(call.custom.input)
            return
    pytest.fail("no patch was whole")


def test_plain_text_needs_no_grammar(client):
    answer = asked(client, tools=[custom("run")], tool_choice="required")
    assert answer.choices[0].message.tool_calls[0].custom.name == "run"


@pytest.mark.parametrize(
    ("syntax", "definition"),
    [
        ("lark", 'start: start "a" | "a"'),
        ("lark", 'start: "(" start ")" | "x"'),
        ("regex", "(a|b|ab)*c"),
        ("regex", "(?:a{1000}){1000}"),
    ],
)
def test_recursion_and_repetition_are_bounded(client, syntax, definition):
    tools = [custom("odd", syntax, definition)]
    answer = asked(client, tools=tools, tool_choice="required", max_tokens=40)
    assert answer.choices[0].message.tool_calls
