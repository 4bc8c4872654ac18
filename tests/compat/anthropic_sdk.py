"""What an application does with Anthropic's Python SDK; prints JSON.

usage: anthropic_sdk.py BASE_URL       (PYTHONPATH names the SDK to use)
"""

from __future__ import annotations

import json
import sys
from typing import Any

import anthropic
from anthropic import beta_tool

HELLO = [{"role": "user", "content": "Hello!"}]
CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS = [
    {"name": name, "description": description, "input_schema": CITY}
    for name, description in (
        ("get_weather", "Get the current weather in a city"),
        ("get_population", "Get the population of a city"),
    )
]
RESULTS = {
    "get_weather": {"temperature": 21, "sky": "sunny"},
    "get_population": {"population": 7042},
}
QUESTIONS = (
    "What is the weather in Rome?",
    "What is the population of Oslo?",
    "What is the weather in Madrid?",
)
BILLING = "x-anthropic-billing-header: cc_version=2.1.177.01c; cc_entrypoint=sdk-cli; cch={};"


def main(base_url: str) -> None:
    client = anthropic.Anthropic(base_url=base_url, api_key="none", max_retries=0)
    fields: dict[str, Any] = {"model": "demo", "max_tokens": 60, "messages": HELLO}
    whole = client.messages.create(**fields)
    with client.messages.stream(**fields) as stream:
        text = "".join(stream.text_stream)
        folded = stream.get_final_message()
    with client.messages.create(**{**fields, "model": "endless"}, stream=True) as abandoned:
        next(iter(abandoned))
    weather = {**fields, "messages": [{"role": "user", "content": QUESTIONS[0]}], "tools": TOOLS}
    with client.messages.stream(**weather) as stream:
        kinds = {event.type for event in stream}
        called = stream.get_final_message()
    counted = client.messages.count_tokens(
        **{name: value for name, value in weather.items() if name != "max_tokens"}
    )
    told = {
        "version": anthropic.__version__,
        "whole": comparable(whole),
        "folded": comparable(folded),
        "text": [text, whole.content[0].text],
        "called": [comparable(called), comparable(client.messages.create(**weather))],
        "kinds": sorted(kinds),
        "counted": [counted.input_tokens, prompt_tokens(called)],
        "loop": loop(client),
        "runner": runner(client),
        "errors": errors(client, fields),
        "cached": [hits(client, BILLING), hits(client, "Request {}.")],
    }
    sys.stdout.write(json.dumps(told))


def comparable(message: anthropic.types.Message) -> dict[str, Any]:
    """Without what differs between two answers: ids, and what the prefix cache had."""
    told = message.to_dict(exclude_unset=False, exclude_none=True)
    told["content"] = [{**block, "id": ""} for block in told["content"]]
    usage = told.pop("usage")
    return {**told, "id": "", "output_tokens": usage["output_tokens"]}


def prompt_tokens(message: anthropic.types.Message) -> int:
    return message.usage.input_tokens + (message.usage.cache_read_input_tokens or 0)


def loop(client: anthropic.Anthropic) -> list[list[Any]]:
    """An agent of three turns with two tools: tool, input and the answer's text for each."""
    messages: list[Any] = []
    told = []
    for question in QUESTIONS:
        messages.append({"role": "user", "content": question})
        asked = client.messages.create(model="demo", max_tokens=60, messages=messages, tools=TOOLS)
        (call,) = (block for block in asked.content if block.type == "tool_use")
        result = json.dumps(RESULTS[call.name])
        messages += [
            {"role": "assistant", "content": asked.content},
            {
                "role": "user",
                "content": [{"type": "tool_result", "tool_use_id": call.id, "content": result}],
            },
        ]
        with client.messages.stream(
            model="demo", max_tokens=60, messages=messages, tools=TOOLS
        ) as stream:
            answer = stream.get_final_message()
        messages.append({"role": "assistant", "content": answer.content})
        told.append(
            [asked.stop_reason, call.name, call.input, answer.stop_reason, answer.content[0].text]
        )
    return told


def runner(client: anthropic.Anthropic) -> list[Any]:
    """The SDK's own loop."""
    asked: list[str] = []

    @beta_tool
    def get_weather(city: str) -> str:
        """Get the current weather in a city

        Args:
            city: Name of the city
        """
        asked.append(city)
        return json.dumps(RESULTS["get_weather"])

    last = client.beta.messages.tool_runner(
        model="demo",
        max_tokens=60,
        messages=[{"role": "user", "content": QUESTIONS[0]}],
        tools=[get_weather],
    ).until_done()
    return [asked, last.stop_reason, last.content[0].text]


def errors(client: anthropic.Anthropic, fields: dict[str, Any]) -> dict[str, list[object]]:
    """name -> [class, status, type, whether the request id is known]."""
    wrong = {
        "model": {"model": "nobody"},
        "range": {"max_tokens": 0},
        "stream": {"messages": [{"role": "user", "content": "hello " * 9_000}], "stream": True},
    }
    found: dict[str, list[object]] = {}
    for name, arguments in wrong.items():
        try:
            client.messages.create(**{**fields, **arguments})
        except anthropic.APIStatusError as error:
            known = bool(error.request_id)
            found[name] = [type(error).__name__, error.status_code, error.type, known]
            found[f"{name} says"] = [error.body["error"]["message"]]
    return found


def hits(client: anthropic.Anthropic, first: str) -> float:
    """The share of prompt tokens that was cached, over requests whose system prompt begins with a
    block that is always another one.
    """
    cached = total = 0
    system = "Answer the question of the user in a short and friendly sentence. " * 4
    for number in range(6):
        answer = client.messages.create(
            model="demo",
            max_tokens=4,
            system=[
                {"type": "text", "text": first.format(f"{number:05x}")},
                {"type": "text", "text": system, "cache_control": {"type": "ephemeral"}},
            ],
            messages=HELLO,
        )
        if number:
            cached += answer.usage.cache_read_input_tokens or 0
            total += prompt_tokens(answer)
    return cached / total


if __name__ == "__main__":
    main(sys.argv[1])
