"""The seven cases of Open Responses' compliance suite over the demo model, checked by the types of
the specification. github.com/openresponses/openresponses, 0cb939ccf839, src/lib/compliance-tests.ts
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.api.responses.formats import events
from tests.fixtures.stack import PLAIN

types = pytest.importorskip("openresponses_types.types", reason="needs Python 3.11")
TOOL = {
    "type": "function",
    "name": "get_weather",
    "description": "Get the current weather for a location",
    "parameters": {
        "type": "object",
        "properties": {
            "location": {
                "type": "string",
                "description": "The city and state, e.g. San Francisco, CA",
            }
        },
        "required": ["location"],
    },
}
WEATHER = [
    {"type": "message", "role": "user", "content": "What's the weather like in San Francisco?"}
]
IMAGE = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9Q"
    "DwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
TEXTS: dict[str, list[dict[str, Any]]] = {
    "basic": [{"role": "user", "content": "Say hello in exactly 3 words."}],
    "streaming": [{"role": "user", "content": "Count from 1 to 5."}],
    "system prompt": [
        {"role": "system", "content": "You are a pirate. Always respond in pirate speak."},
        {"role": "user", "content": "Say hello."},
    ],
    "multi turn": [
        {"role": "user", "content": "My name is Alice."},
        {
            "role": "assistant",
            "content": "Hello Alice! Nice to meet you. How can I help you today?",
        },
        {"role": "user", "content": "What is my name?"},
    ],
}


def asked(stack, given: list[dict[str, Any]], **fields: Any) -> Any:
    body = {"model": "demo", "input": given, **fields}
    return PLAIN.post(f"{stack.url}/v1/responses", json=body)


def checked(response: dict[str, Any]) -> dict[str, Any]:
    types.ResponseResource.model_validate(response, strict=False)
    assert response["status"] == "completed"
    assert response["output"]
    return response


def streamed(stack, given: list[dict[str, Any]], **fields: Any) -> list[dict[str, Any]]:
    found = events(asked(stack, given, stream=True, **fields).text)
    for event in found:
        name = "".join(map(str.capitalize, event["type"].replace(".", "_").split("_")))
        getattr(types, f"{name}StreamingEvent").model_validate(event)
    checked(found[-1]["response"])
    return found


@pytest.mark.parametrize("case", TEXTS)
def test_text(stack, case):
    given = [{"type": "message", **one} for one in TEXTS[case]]
    if case == "streaming":
        streamed(stack, given)
    else:
        checked(asked(stack, given).json())


def test_tool_calling(stack):
    found = checked(asked(stack, WEATHER, tools=[TOOL]).json())
    assert "function_call" in {item["type"] for item in found["output"]}


def test_tool_calling_streaming(stack):
    found = streamed(stack, WEATHER, tools=[TOOL])
    kinds = {event["type"] for event in found}
    assert {
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
    } <= kinds
    for kind in ("response.output_item.added", "response.output_item.done"):
        assert any(one["type"] == kind and one["item"]["type"] == "function_call" for one in found)


def test_an_image_is_refused_by_name_where_the_model_takes_none(stack):
    parts = [
        {"type": "input_text", "text": "What do you see in this image? Answer in one sentence."},
        {"type": "input_image", "image_url": IMAGE},
    ]
    response = asked(stack, [{"type": "message", "role": "user", "content": parts}])
    error = response.json()["error"]
    assert response.status_code == 400
    assert "image" in error["message"]
