"""POST /v1/completions."""

from __future__ import annotations

import time
import uuid
from typing import Any

from typing_extensions import assert_never

from proxy.api.openai.bodies import CompletionBody
from proxy.api.openai.usage import usage_body
from proxy.domain.output import Completion, Finished, OutputEvent, TextDelta
from proxy.domain.request import GenerationRequest, Prompt, TextPrompt, TokenPrompt


def to_domain(body: CompletionBody) -> GenerationRequest:
    return GenerationRequest(
        id=f"cmpl-{uuid.uuid4().hex}",
        model=body.model,
        prompt=_prompt(body.prompt),
        sampling=body.sampling,
        max_tokens=body.max_tokens,
        stop=body.stops,
        user=body.user,
        metadata=body.metadata or {},
    )


def _prompt(given: str | list[str] | list[int]) -> Prompt:
    if isinstance(given, str):
        return TextPrompt(text=given)
    if isinstance(given[0], str):
        return TextPrompt(text=given[0])
    return TokenPrompt(ids=tuple(int(token) for token in given))


class CompletionRenderer:
    """Events as text_completion objects; a chunk has the same shape as the whole."""

    field_names: dict[str, str] = {}  # noqa: RUF012 the domain's names are this API's

    def __init__(self, body: CompletionBody, request: GenerationRequest) -> None:
        self._includes_usage = body.includes_usage
        self._head = {
            "id": request.id,
            "object": "text_completion",
            "created": int(time.time()),
            "model": request.model,
        }

    def chunks(self, event: OutputEvent) -> list[dict[str, Any]]:
        match event:
            case TextDelta():
                return [self._chunk(_choice(event.text, None))]
            case Finished():
                end = self._chunk(_choice("", event.reason.value))
                if not self._includes_usage:
                    return [end]
                return [end, {**end, "choices": [], "usage": usage_body(event.usage)}]
            case _:
                assert_never(event)

    def full(self, completion: Completion) -> dict[str, Any]:
        choice = _choice(completion.text, completion.reason.value)
        return {**self._head, "choices": [choice], "usage": usage_body(completion.usage)}

    def _chunk(self, choice: dict[str, Any]) -> dict[str, Any]:
        chunk = {**self._head, "choices": [choice]}
        return {**chunk, "usage": None} if self._includes_usage else chunk


def _choice(text: str, finish_reason: str | None) -> dict[str, Any]:
    return {"index": 0, "text": text, "logprobs": None, "finish_reason": finish_reason}
