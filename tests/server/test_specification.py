"""The examples of the specification that this server was made from, but for the model's name."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest
from jsonschema_rs import validate
from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.types.chat import ChatCompletion

from tests.fixtures.stack import HANG_S, Stack

SCHEMA = {
    "type": "object",
    "properties": {"bullets": {"type": "array", "items": {"type": "string"}}},
    "required": ["bullets"],
    "additionalProperties": False,
}
ARGUMENTS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Get the current weather in a city",
        "parameters": ARGUMENTS,
    },
}
REQUEST: dict[str, Any] = {
    "model": "demo",
    "messages": [
        {"role": "system", "content": "You are a helpful assistant."},
        {"role": "user", "content": "Summarize: Rome is old. Oslo is cold. Madrid is warm."},
    ],
    "response_format": {
        "type": "json_schema",
        "json_schema": {"name": "Summary bullets", "strict": True, "schema": SCHEMA},
    },
    "tools": [WEATHER],
    "tool_choice": "auto",
    "metadata": {"tenant_id": "acme", "priority": "high"},
    "stop": ["</s>"],
    "seed": 42,
    "user": "user-123",
    "temperature": 0.7,
    "max_tokens": 256,
}
TRACE = {"X-Request-Trace": "trace-123"}


@pytest.fixture(scope="module")
def specified(stack: Stack, start, models_file) -> Stack:
    """A proxy without keys, in front of the demo's Triton."""
    proxy = start(
        *("proxy", "--triton", f"grpc://127.0.0.1:{stack.triton_grpc_port}"),
        TENANT_FROM_METADATA="true",
        MODELS_FILE=models_file,
        LOG_FORMAT="json",
    )
    proxy.wait_ready()
    return proxy


@pytest.fixture(scope="module")
def client(specified: Stack) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{specified.url}/v1", api_key="none", max_retries=0) as made:
        yield made


def post(stack: Stack, path: str, body: dict[str, Any], **headers: str) -> httpx.Response:
    response = httpx.post(f"{stack.url}{path}", json=body, headers=headers, timeout=HANG_S)
    assert response.status_code == 200, response.text
    return response


def folded(chunks: Iterator[Any]) -> ChatCompletion:
    state = ChatCompletionStreamState()
    for chunk in chunks:
        state.handle_chunk(chunk)
    return state.get_final_completion()


def sent(response: httpx.Response) -> Iterator[Any]:
    *lines, done, _ = response.text.split("\n\n")
    assert done == "data: [DONE]"
    for line in lines:
        yield openai.types.chat.ChatCompletionChunk.model_validate_json(line[len("data: ") :])


def check(answer: ChatCompletion) -> None:
    """It is a call of the tool, or JSON of the schema."""
    (choice,) = answer.choices
    if choice.message.tool_calls:
        assert choice.finish_reason == "tool_calls"
        for call in choice.message.tool_calls:
            assert call.function.name == "get_weather"
            validate(ARGUMENTS, json.loads(call.function.arguments))
    else:
        assert choice.finish_reason == "stop"
        validate(SCHEMA, json.loads(choice.message.content or ""))


@pytest.mark.parametrize(
    "fields", [{}, {"tool_choice": "none"}, {"tools": None, "tool_choice": None}]
)
def test_the_first_request_with_the_sdk_and_over_http_streamed_and_not(specified, client, fields):
    request = {**REQUEST, **fields}
    whole = client.chat.completions.create(**request)
    check(whole)
    streamed = folded(client.chat.completions.create(**request, stream=True))
    chat = "/v1/chat/completions"
    raw = ChatCompletion.model_validate_json(post(specified, chat, request).content)
    events = folded(sent(post(specified, chat, {**request, "stream": True})))
    for other in (streamed, raw, events):
        check(other)
        assert said(other) == said(whole), "the seed makes all four the same"


def said(answer: ChatCompletion) -> tuple[str | None, list[str]]:
    message = answer.choices[0].message
    return message.content, [call.function.arguments for call in message.tool_calls or []]


@pytest.mark.parametrize("priority", ["low", "normal", "high"])
def test_tenant_priority_and_trace_are_accepted_and_logged(specified, priority):
    metadata = {"tenant_id": "acme", "priority": priority}
    response = post(specified, "/v1/chat/completions", {**REQUEST, "metadata": metadata}, **TRACE)
    assert response.headers["x-request-trace"] == "trace-123"
    assert "x-priority-capped" not in response.headers
    line = line_of(specified, response.headers["x-request-id"])
    assert (line["tenant"], line["user"], line["metadata"]) == ("acme", "user-123", metadata)
    assert line["request_trace"] == "trace-123"


def line_of(stack: Stack, request_id: str) -> dict[str, Any]:
    lines = (json.loads(line) for line in stack.log.read_text().splitlines() if line[:1] == "{")
    (found,) = (one for one in lines if one.get("request_id") == request_id)
    return found
