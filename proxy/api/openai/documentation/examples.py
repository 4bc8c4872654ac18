"""Example requests and answers of OpenAI's routes, for the OpenAPI document.

Tests send each request to a server, and validate each answer against its schema.
"""

from __future__ import annotations

import json
from typing import Any

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
USAGE = {
    "prompt_tokens": 18,
    "completion_tokens": 6,
    "total_tokens": 24,
    "prompt_tokens_details": {"cached_tokens": 16, "audio_tokens": 0},
    "completion_tokens_details": {
        "reasoning_tokens": 0,
        "audio_tokens": 0,
        "accepted_prediction_tokens": 0,
        "rejected_prediction_tokens": 0,
    },
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

CHAT: Json = {
    "id": "chatcmpl-4f1d",
    "object": "chat.completion",
    **HEAD,
    "choices": [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "I am a small model.", "refusal": None},
            "logprobs": None,
            "finish_reason": "stop",
        }
    ],
    "usage": USAGE,
}
COMPLETION: Json = {
    "id": "cmpl-4f1d",
    "object": "text_completion",
    **HEAD,
    "choices": [
        {"index": 0, "text": ", there was a fox.", "logprobs": None, "finish_reason": "stop"}
    ],
    "usage": USAGE,
}
MODEL: Json = {
    "id": "demo",
    "object": "model",
    "created": CREATED,
    "owned_by": "triton-openai",
    "root": "demo",
    "parent": None,
    "context_length": 4096,
    "max_model_len": 4096,
    "max_output_tokens": 4096,
    "default_max_tokens": None,
    "limits": {"max_tokens": None, "n": None, "best_of": None, "prompt_tokens": None},
    "tool_parser": "hermes",
    "reasoning_parser": None,
    "capabilities": ["guided_decoding", "seed", "temperature", "top_p"],
    "deprecated": None,
    "sunset": None,
}
MODELS: Json = {"object": "list", "data": [MODEL]}
RENDERED: Json = {
    "id": "chatcmpl-4f1d",
    "object": "chat.completion.render",
    "model": "demo",
    "prompt": "<|user|>Hi<|assistant|>",
    "prompt_token_ids": [1, 71, 2],
    "prompt_tokens": 3,
    "context_length": 4096,
    "max_tokens": 4093,
    "limited_by": ["context_length"],
}


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
