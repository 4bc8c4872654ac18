"""POST /v1/chat/completions."""

from __future__ import annotations

import time
import uuid
from typing import Any

from typing_extensions import assert_never

from proxy.api.openai.bodies import ChatCompletionBody
from proxy.api.openai.usage import usage_body
from proxy.domain.output import Completion, Finished, OutputEvent, TextDelta
from proxy.domain.request import ChatPrompt, GenerationRequest


def to_domain(body: ChatCompletionBody) -> GenerationRequest:
    return GenerationRequest(
        id=f"chatcmpl-{uuid.uuid4().hex}",
        model=body.model,
        prompt=ChatPrompt(messages=tuple(message.to_domain() for message in body.messages)),
        sampling=body.sampling,
        max_tokens=body.max_tokens or body.max_completion_tokens,
        stop=body.stops,
        user=body.user,
        metadata=body.metadata or {},
    )


class ChatRenderer:
    """Events as chat.completion(.chunk) objects."""

    def __init__(self, body: ChatCompletionBody, request: GenerationRequest) -> None:
        limit = "max_completion_tokens" if body.max_tokens is None else "max_tokens"
        self.field_names = {"prompt": "messages", "max_tokens": limit}
        self._includes_usage = body.includes_usage
        self._has_begun = False
        self._head = {"id": request.id, "created": int(time.time()), "model": request.model}

    def chunks(self, event: OutputEvent) -> list[dict[str, Any]]:
        """The role comes first, in a chunk of its own; usage last, where asked for."""
        chunks = []
        if not self._has_begun:
            self._has_begun = True
            chunks.append(self._chunk({"role": "assistant", "content": "", "refusal": None}))
        match event:
            case TextDelta():
                chunks.append(self._chunk({"content": event.text}))
            case Finished():
                chunks.append(self._chunk({}, finish_reason=event.reason.value))
                if self._includes_usage:
                    usage = usage_body(event.usage)
                    chunks.append({**self._chunk({}), "choices": [], "usage": usage})
            case _:
                assert_never(event)
        return chunks

    def full(self, completion: Completion) -> dict[str, Any]:
        message = {"role": "assistant", "content": completion.text, "refusal": None}
        choice = {
            "index": 0,
            "message": message,
            "logprobs": None,
            "finish_reason": completion.reason.value,
        }
        usage = usage_body(completion.usage)
        return {**self._head, "object": "chat.completion", "choices": [choice], "usage": usage}

    def _chunk(self, delta: dict[str, Any], finish_reason: str | None = None) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
        chunk = {**self._head, "object": "chat.completion.chunk", "choices": [choice]}
        return {**chunk, "usage": None} if self._includes_usage else chunk
