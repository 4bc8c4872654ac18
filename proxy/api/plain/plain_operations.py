"""Descriptions of the plain chat's routes for the OpenAPI document."""

from __future__ import annotations

import json
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from triton_openai.proxy.api.openapi.operation import (
    EVENTS,
    GENERATION,
    GENERATION_HEADERS,
    GENERATION_TAKES,
    JSON,
    Content,
    Operation,
)
from triton_openai.proxy.api.plain.plain_chat import PlainChatBody

CREATED = 1_767_225_600


class PlainMessage(BaseModel):
    model_config = ConfigDict(extra="forbid")

    role: Literal["assistant"]
    content: str


class PlainAnswer(BaseModel):
    """The whole answer."""

    model_config = ConfigDict(extra="forbid")

    id: str
    model: str
    created: int = Field(description="Unix time, in seconds.")
    message: PlainMessage
    done: Literal[True]


class PlainChunk(BaseModel):
    """More of the answer; in the last line `done` is true and the text is empty."""

    model_config = ConfigDict(extra="forbid")

    message: PlainMessage
    done: bool
    index: int = Field(ge=0, description="Counts the chunks from 0.")


def _chunk(index: int, text: str, *, is_done: bool = False) -> dict[str, Any]:
    return {"message": {"role": "assistant", "content": text}, "done": is_done, "index": index}


REQUESTS = {
    "plain": {"messages": [{"role": "user", "content": "Who are you?"}]},
    "all fields": {
        "model": "demo",
        "messages": [
            {"role": "system", "content": "Answer briefly."},
            {"role": "user", "content": "Who are you?"},
        ],
        "temperature": 0.2,
    },
}
ANSWER = {
    "id": "chat-4f1d",
    "model": "demo",
    "created": CREATED,
    "message": {"role": "assistant", "content": "I am a small model."},
    "done": True,
}
PARTS = (_chunk(0, "I am"), _chunk(1, " a small model."))
LAST = _chunk(2, "", is_done=True)


def _operation(media: str, content: Content) -> Operation:
    return Operation(
        tag="plain",
        takes=PlainChatBody,
        requests=REQUESTS,
        gives={media: content},
        errors=GENERATION,
        headers=GENERATION_HEADERS,
        takes_headers=GENERATION_TAKES,
    )


WHOLE = _operation(JSON, Content(body=PlainAnswer, example=ANSWER))
LINES = _operation(
    JSON,
    Content(
        body=PlainChunk,
        example="".join(f"{json.dumps(part)}\n" for part in (*PARTS, LAST)),
        is_lines=True,
    ),
)
EVENT_STREAM = _operation(
    EVENTS,
    Content(
        body=PlainChunk,
        example="".join(f"data: {json.dumps(part)}\n\n" for part in PARTS) + "data: [DONE]\n\n",
    ),
)
