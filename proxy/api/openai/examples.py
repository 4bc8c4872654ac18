"""Example requests and streams of OpenAI's routes, for the OpenAPI document.

Tests send each request to a server, and validate each stream against its schema. Examples of other
answers are composed of those of their fields.
"""

from __future__ import annotations

import json
from typing import Annotated, Any

from fastapi import Body
from fastapi.openapi.models import Example

from proxy.api.openai.chat_body import ChatCompletionBody
from proxy.api.openai.completion_body import CompletionBody

Json = dict[str, Any]
CREATED = 1_767_225_600
USER = {"role": "user", "content": "What is the weather in Rome?"}
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather in a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        },
    },
}
CITY_SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
HEAD = {"created": CREATED, "model": "demo", "system_fingerprint": "fp_1f0c5a93d2"}

CHAT_REQUESTS: Json = {
    "plain": {"model": "demo", "messages": [{"role": "user", "content": "Who are you?"}]},
    "stream": {
        "model": "demo",
        "messages": [{"role": "system", "content": "Answer briefly."}, USER],
        "max_completion_tokens": 50,
        "temperature": 0.2,
        "stream": True,
        "stream_options": {"include_usage": True},
    },
    "tools": {"model": "demo", "messages": [USER], "tools": [WEATHER], "tool_choice": "auto"},
    "schema": {
        "model": "demo",
        "messages": [{"role": "user", "content": "Name a city."}],
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "city", "schema": CITY_SCHEMA, "strict": True},
        },
    },
}
COMPLETION_REQUESTS: Json = {
    "plain": {"model": "demo", "prompt": "Once upon a time", "max_tokens": 20},
    "log-probabilities": {"model": "demo", "prompt": "Hello", "max_tokens": 5, "logprobs": 2},
    "stream": {"model": "demo", "prompt": ["Hello", "Good day"], "stream": True},
}


def _named(requests: Json) -> dict[str, Example]:
    return {name: {"value": value} for name, value in requests.items()}


ChatRequest = Annotated[ChatCompletionBody, Body(openapi_examples=_named(CHAT_REQUESTS))]
CompletionRequest = Annotated[CompletionBody, Body(openapi_examples=_named(COMPLETION_REQUESTS))]


def _chunk(delta: Json, finish: str | None = None) -> Json:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    head = {"id": "chatcmpl-4f1d", "object": "chat.completion.chunk", **HEAD}
    return {**head, "choices": [choice]}


def _text_chunk(text: str, finish: str | None = None) -> Json:
    choice = {"index": 0, "text": text, "logprobs": None, "finish_reason": finish}
    return {"id": "cmpl-4f1d", "object": "text_completion", **HEAD, "choices": [choice]}


def events(*payloads: Json) -> str:
    """The payloads as a stream of server-sent events."""
    lines = (json.dumps(payload) for payload in payloads)
    return "".join(f"data: {line}\n\n" for line in (*lines, "[DONE]"))


CHAT_STREAM = events(
    _chunk({"role": "assistant", "content": "", "refusal": None}),
    _chunk({"content": "I am a small model."}),
    _chunk({}, "stop"),
)
COMPLETION_STREAM = events(_text_chunk(", there was a fox."), _text_chunk("", "stop"))
