"""What an application does with responses in OpenAI's Python SDK, in any of its versions; prints
JSON.

usage: python_responses.py BASE_URL       (PYTHONPATH names the SDK to use)
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

import openai
from pydantic import BaseModel

CITY = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
TOOLS: list[Any] = [
    {"type": "function", "name": name, "description": text, "parameters": CITY, "strict": False}
    for name, text in (
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
HELLO: dict[str, Any] = {"model": "demo", "input": "Hello!"}
LONG: dict[str, Any] = {"model": "endless", "input": "Hello!", "max_output_tokens": 3000}
TRIES = 10  # on a busy machine, even a long response may end before it is cancelled


class Person(BaseModel):
    name: str
    age: int


def main(base_url: str) -> None:
    client = openai.OpenAI(base_url=base_url, api_key="none", max_retries=0)
    whole = client.responses.create(**HELLO)
    events = list(client.responses.create(**HELLO, stream=True))
    with client.responses.stream(**HELLO) as stream:
        text = "".join(one.delta for one in stream if one.type == "response.output_text.delta")
        folded = stream.get_final_response()
    with client.responses.create(**LONG, stream=True) as abandoned:
        next(iter(abandoned))
    told = {
        "version": openai.__version__,
        "responses": [comparable(one) for one in (whole, events[-1].response, folded)],
        "texts": [whole.output_text, text],
        "read": comparable(client.responses.retrieve(whole.id)) == comparable(whole),
        "parsed": parsed(client),
        "calls": calls(client),
        "loops": [list(loop(client, is_streamed)) for is_streamed in (False, True)],
        "background": in_background(client),
        "kept": kept(client),
        "errors": errors(client),
    }
    if hasattr(client.responses, "input_tokens"):
        told["counted"] = [
            client.responses.input_tokens.count(**HELLO).input_tokens,
            whole.usage.input_tokens,
        ]
    if hasattr(client.responses, "compact"):
        told["compacted"] = compacted(client)
    if hasattr(client.responses, "connect"):
        told["socket"] = over_a_socket(client)
    sys.stdout.write(json.dumps(told))


def comparable(response: Any) -> dict[str, Any]:
    """Without what differs between two responses to one request, and what helpers add."""
    found = json.loads(response.model_dump_json(exclude={"output_parsed"}))
    for item in found["output"]:
        item["id"] = item["call_id"] = ""
        for part in item.get("content") or ():
            part.pop("parsed", None)
        item.pop("parsed_arguments", None)
    usage = found.pop("usage")
    changed = {"id": "", "created_at": 0, "completed_at": 0}
    return {**found, **changed, "tokens": [usage["output_tokens"], usage["total_tokens"]]}


def parsed(client: openai.OpenAI) -> list[Any]:
    fields: dict[str, Any] = {
        "model": "demo",
        "input": "Extract the name and the age: Tom is 31 years old.",
        "text_format": Person,
    }
    whole = client.responses.parse(**fields)
    with client.responses.stream(**fields) as stream:
        folded = stream.until_done().get_final_response()
    return [json.loads(one.output_parsed.model_dump_json()) for one in (whole, folded)]


def calls(client: openai.OpenAI) -> list[Any]:
    """One call in one piece, and as a stream that the SDK parses."""
    fields: dict[str, Any] = {"model": "demo", "input": QUESTIONS[0], "tools": TOOLS}
    whole = client.responses.create(**fields)
    with client.responses.stream(**fields) as stream:
        kinds = sorted({event.type for event in stream})
        folded = stream.get_final_response()
    return [comparable(whole), comparable(folded), kinds]


def loop(client: openai.OpenAI, is_streamed: bool) -> Iterator[list[Any]]:
    """An agent of three turns with two tools, continued by `previous_response_id` alone."""

    def ask(given: Any, previous: str | None) -> Any:
        fields: dict[str, Any] = {"model": "demo", "input": given, "tools": TOOLS}
        if previous is not None:
            fields["previous_response_id"] = previous
        if not is_streamed:
            return client.responses.create(**fields)
        with client.responses.stream(**fields) as stream:
            return stream.get_final_response()

    previous = None
    for question in QUESTIONS:
        asked = ask(question, previous)
        (call,) = asked.output
        output = {
            "type": "function_call_output",
            "call_id": call.call_id,
            "output": json.dumps(RESULTS[call.name]),
        }
        answer = ask([output], asked.id)
        previous = answer.id
        yield [call.name, json.loads(call.arguments), answer.output_text]


def in_background(client: openai.OpenAI) -> dict[str, Any]:
    queued = client.responses.create(**HELLO, background=True)
    first = queued.status
    while queued.status in ("queued", "in_progress"):
        queued = client.responses.retrieve(queued.id)
    events = list(client.responses.retrieve(queued.id, stream=True))
    later = list(client.responses.retrieve(queued.id, stream=True, starting_after=4))
    for _ in range(TRIES):
        with client.responses.create(**LONG, background=True, stream=True) as stream:
            began = next(iter(stream))
        cut = client.responses.retrieve(began.response.id, stream=True, starting_after=1)
        resumed = next(iter(cut)).sequence_number
        ended = client.responses.cancel(began.response.id)
        if ended.status == "cancelled":
            break
    with client.responses.stream(response_id=queued.id, starting_after=2) as helper:
        helped = next(iter(helper)).sequence_number
    return {
        "first": first,
        "status": queued.status,
        "folded": comparable(events[-1].response) == comparable(queued),
        "text": queued.output_text,
        "numbers": [event.sequence_number for event in events] == list(range(len(events))),
        "later": [later[0].sequence_number, later == events[5:]],
        "resumed": [resumed, helped],
        "cancelled": [ended.status, client.responses.retrieve(ended.id).status],
    }


def kept(client: openai.OpenAI) -> dict[str, Any]:
    items = [{"role": "user", "content": f"Number {number}."} for number in range(45)]
    found = client.responses.create(model="demo", input=items, max_output_tokens=1)
    pages = client.responses.input_items.list(found.id, limit=20, order="asc")
    listed = [item.content[0].text for item in pages]
    client.responses.delete(found.id)
    try:
        client.responses.retrieve(found.id)
    except openai.NotFoundError as error:
        gone = [error.status_code, error.code]
    return {
        "listed": listed == [item["content"] for item in items],
        "gone": gone,
        "incomplete": [found.status, found.incomplete_details.reason],
    }


def compacted(client: openai.OpenAI) -> list[Any]:
    """A summary takes the place of a conversation, and the next answer reads it."""
    said = [
        {"role": "user", "content": "My name is Alice."},
        {"role": "assistant", "content": "Hello Alice!"},
    ]
    compact = client.responses.compact(model="demo", input=said)
    output = [item.model_dump(exclude_none=True) for item in compact.output]
    again = client.responses.create(
        model="demo", input=[*output, {"role": "user", "content": "Hello!"}]
    )
    return [compact.object, [item["type"] for item in output], again.status]


def over_a_socket(client: openai.OpenAI) -> dict[str, Any]:
    def answer(connection: Any, **fields: Any) -> Any:
        connection.response.create(**fields)
        for event in connection:
            if event.type == "error":
                return event
            if event.type in ("response.completed", "response.incomplete"):
                return event.response
        return None

    with client.responses.connect() as connection:
        first = answer(connection, **HELLO, store=False)
        second = answer(
            connection,
            model="demo",
            input="What is 1 + 1?",
            previous_response_id=first.id,
            store=False,
        )
        error = answer(connection, model="nobody", input="Hello!").to_dict()
    return {
        "text": first.output_text,
        "continued": [second.status, second.usage.input_tokens > first.usage.input_tokens],
        "wrong": [error["type"], error["error"]["code"], error["status"]],
    }


def errors(client: openai.OpenAI) -> dict[str, list[Any]]:
    """name -> [class, status, code, param]."""
    wrong: dict[str, dict[str, Any]] = {
        "model": {"model": "nobody"},
        "range": {"temperature": 9},
        "stream": {"input": "word " * 20_000, "stream": True},
        "previous": {"previous_response_id": "resp_1"},
        "tool": {"tools": [{"type": "web_search"}]},
    }
    found: dict[str, list[Any]] = {}
    for name, arguments in wrong.items():
        try:
            client.responses.create(**{**HELLO, **arguments})
        except openai.APIStatusError as error:
            found[name] = [type(error).__name__, error.status_code, error.code, error.param]
    return found


if __name__ == "__main__":
    main(sys.argv[1])
