"""Tools with the demo model over the whole stack, as an agent with OpenAI's SDK uses them."""

from __future__ import annotations

import json

import pytest


def function(name: str, description: str, **properties: dict) -> dict:
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return {
        "type": "function",
        "function": {"name": name, "description": description, "parameters": schema},
    }


CITY = {"type": "string", "description": "Name of the city"}
WEATHER = function("get_weather", "Get the current weather in a city", city=CITY)
PEOPLE = function("get_population", "Get the population of a city", city=CITY)
TOOLS = [WEATHER, PEOPLE]
IN_ROME = [{"role": "user", "content": "What is the weather in Rome?"}]
BOTH_ASKED = "What is the weather in Rome and what is the population of Oslo?"
BOTH = [{"role": "user", "content": BOTH_ASKED}]


def asked(client, messages, **fields):
    answer = client.chat.completions.create(
        **{"model": "demo", "messages": messages, "tools": TOOLS} | fields
    )
    return answer.choices[0]


def calls(choice) -> list[tuple[str, dict]]:
    found = choice.message.tool_calls or []
    return [(call.function.name, json.loads(call.function.arguments)) for call in found]


@pytest.mark.parametrize("separators", [(", ", ": "), (",", ":")], ids=["spaced", "compact"])
def test_an_agent_loop_of_three_turns(client, separators):
    results = {
        "get_weather": {"temperature": 21, "sky": "sunny"},
        "get_population": {"population": 7042},
    }
    messages: list = []
    for question, tool, city, said in (
        ("What is the weather in Rome?", "get_weather", "Rome", "21"),
        ("What is the population of Oslo?", "get_population", "Oslo", "7042"),
        ("What is the weather in Madrid?", "get_weather", "Madrid", "21"),
    ):
        messages.append({"role": "user", "content": question})
        choice = asked(client, messages)
        assert (choice.finish_reason, calls(choice)) == ("tool_calls", [(tool, {"city": city})])
        (call,) = choice.message.tool_calls
        result = json.dumps(results[tool], separators=separators)
        messages += [choice.message, {"role": "tool", "tool_call_id": call.id, "content": result}]
        choice = asked(client, messages)
        assert (choice.finish_reason, calls(choice)) == ("stop", [])
        assert said in choice.message.content
        messages.append(choice.message)


def test_the_stream_helper_puts_the_call_together(client):
    with client.chat.completions.stream(model="demo", messages=IN_ROME, tools=TOOLS) as stream:
        kinds = [event.type for event in stream]
        choice = stream.get_final_completion().choices[0]
    assert "tool_calls.function.arguments.delta" in kinds
    assert calls(choice) == calls(asked(client, IN_ROME)) == [("get_weather", {"city": "Rome"})]
    assert choice.finish_reason == "tool_calls"


def test_parallel_calls(client):
    assert calls(asked(client, BOTH)) == [
        ("get_weather", {"city": "Rome"}),
        ("get_population", {"city": "Oslo"}),
    ]


def test_required_picks_a_tool_by_meaning(client):
    convert = function("convert", "Convert an amount of money", amount={"type": "number"})
    tools = [convert, PEOPLE, WEATHER]
    for question, name in (
        ("What is the weather in Rome?", "get_weather"),
        ("What is the population of Oslo?", "get_population"),
    ):
        messages = [{"role": "user", "content": question}]
        choice = asked(client, messages, tools=tools, tool_choice="required")
        assert calls(choice)[0][0] == name
        assert choice.finish_reason == "tool_calls"


def test_required_calls_where_the_model_would_not(client):
    choice = asked(client, [{"role": "user", "content": "Hello!"}], tool_choice="required")
    assert calls(choice)
    assert set(calls(choice)[0][1]) == {"city"}
    assert not (choice.message.content or "").strip()


def test_a_named_function_is_called_and_the_answer_stops(client):
    named = {"type": "function", "function": {"name": "get_population"}}
    choice = asked(client, IN_ROME, tool_choice=named)
    assert [name for name, _ in calls(choice)] == ["get_population"]
    assert choice.finish_reason == "stop"


def test_strict_arguments_conform(client):
    unit = {"enum": ["celsius", "kelvin"]}
    tool = function("get_weather", "Get the current weather in a city", city=CITY, unit=unit)
    tool["function"]["parameters"]["additionalProperties"] = False
    question = [{"role": "user", "content": "What is the weather in Rome in F?"}]
    ((_, left_alone),) = calls(asked(client, question, tools=[tool]))
    assert left_alone["unit"] not in unit["enum"], "a guide has nothing to do here"
    tool["function"]["strict"] = True
    ((name, arguments),) = calls(asked(client, question, tools=[tool]))
    assert (name, set(arguments), arguments["city"]) == ("get_weather", {"city", "unit"}, "Rome")
    assert arguments["unit"] in unit["enum"]
