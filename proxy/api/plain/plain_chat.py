"""The plain chat: its body `{model?, messages, temperature?}`, and the renderer of its messages."""

from __future__ import annotations

import time
import uuid
from typing import Annotated, Any, Literal

from pydantic import Field

from proxy.api.openai import message_bodies
from proxy.api.openai.field_types import RequestBody
from proxy.api.openai.message_bodies import Messages
from proxy.api.openapi.responses import Answer
from proxy.domain.completion import Completion
from proxy.domain.events import Finished, OutputEvent, TextDelta
from proxy.domain.request import ChatPrompt, GenerationRequest, Sampling
from proxy.models.registry import ServedModel


class PlainChatBody(RequestBody):
    model: str | None = Field(None, description="A public name or alias; default: the first model.")
    messages: Annotated[Messages, Field(description="The chat so far.")]
    temperature: Annotated[float, Field(ge=0, le=2)] | None = Field(
        None, description="How random the answer is; default: the model's own."
    )


class PlainMessage(Answer):
    role: Literal["assistant"]
    content: str = Field(examples=["I am a small model."])


class PlainAnswer(Answer):
    """The whole answer."""

    id: str = Field(examples=["cmpl-4f1d"])
    model: str = Field(examples=["demo"])
    created: int = Field(description="Unix time, in seconds.", examples=[1_767_225_600])
    message: PlainMessage
    done: Literal[True]


class PlainChunk(Answer):
    """More of the answer; in the last line `done` is true and the text is empty."""

    message: PlainMessage
    done: bool
    index: int = Field(ge=0, description="Counts the chunks from 0.")


def to_domain(body: PlainChatBody, served: ServedModel, caller: str) -> GenerationRequest:
    messages, images = message_bodies.to_domain(body.messages)
    return GenerationRequest(
        caller=caller,
        id=f"cmpl-{uuid.uuid4().hex}",
        model=served.name,
        fallback_from=served.fallback_from,
        prompt=ChatPrompt(messages=messages, images=images),
        sampling=Sampling(temperature=body.temperature),
    )


class PlainRenderer:
    """Implements answer.Renderer: events become messages, numbered by `index`.

    sends_done: the last chunk of a stream is `"done": true`. Off for SSE, which ends with `[DONE]`.
    """

    def __init__(self, request: GenerationRequest, *, sends_done: bool = True) -> None:
        self._head = {"id": request.id, "model": request.model, "created": int(time.time())}
        self._sends_done = sends_done
        self._next_index = 0

    def chunks(self, event: OutputEvent) -> list[dict[str, Any]]:
        match event:
            case TextDelta():
                return [self._chunk(event.text, is_done=False)]
            case Finished():
                return [self._chunk("", is_done=True)] if self._sends_done else []
            case _:  # this protocol does not show reasoning
                return []

    def kept(self, event: OutputEvent) -> OutputEvent:
        return event

    def full(self, completion: Completion) -> dict[str, Any]:
        return {**self._head, "message": _message(completion.text), "done": True}

    def _chunk(self, text: str, *, is_done: bool) -> dict[str, Any]:
        index = self._next_index
        self._next_index += 1
        return {"message": _message(text), "done": is_done, "index": index}


def _message(text: str) -> dict[str, str]:
    return {"role": "assistant", "content": text}
