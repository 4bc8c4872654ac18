"""POST /v1/chat/completions."""

from __future__ import annotations

import uuid
from typing import Any

from typing_extensions import assert_never

from proxy.api.openai.bodies import ChatCompletionBody
from proxy.api.openai.field_names import FIELD_NAMES
from proxy.api.openai.head import head
from proxy.api.openai.log_probs import chat_log_probs
from proxy.api.openai.usage import StreamUsage, usage_body
from proxy.domain.output import Answer, Completion, Finished, OutputEvent, TextDelta
from proxy.domain.request import ChatPrompt, GenerationRequest

# Of these the values say what happens in any case, so a template need not know of them.
USUAL = {("verbosity", "medium"), ("reasoning_effort", "none")}


def to_domain(body: ChatCompletionBody) -> GenerationRequest:
    return GenerationRequest(
        id=f"chatcmpl-{uuid.uuid4().hex}",
        prompt=_prompt(body),
        max_tokens=body.token_limit,
        **body.shared(body.top_log_probs),
    )


def _prompt(body: ChatCompletionBody) -> ChatPrompt:
    values = {name: getattr(body, name) for name in ("reasoning_effort", "verbosity")}
    continues = bool(body.continue_final_message)
    return ChatPrompt(
        messages=tuple(message.to_domain() for message in body.messages),
        adds_generation_prompt=not continues and body.add_generation_prompt is not False,
        continues_last=continues,
        template_values={
            name: value
            for name, value in values.items()
            if value is not None and (name, value) not in USUAL
        }
        | ({} if body.documents is None else {"documents": body.documents}),
        callers_values=body.chat_template_kwargs or {},
    )


class ChatRenderer:
    """Events as chat.completion(.chunk) objects."""

    def __init__(
        self,
        body: ChatCompletionBody,
        request: GenerationRequest,
        *,
        fingerprint: str | None = None,
    ) -> None:
        limit = "max_completion_tokens" if body.max_tokens is None else "max_tokens"
        self.field_names = {**FIELD_NAMES, "prompt": "messages", "max_tokens": limit}
        self._logs = bool(body.logprobs)
        self._tells_ids = bool(body.return_token_ids)
        self._usage = StreamUsage(body, request.choices)
        self._begun: set[int] = set()
        self._head = head(body, request, "chat.completion", fingerprint)
        self._chunk_head = {
            **self._head,
            "object": "chat.completion.chunk",
            **self._usage.head,
        }

    def chunks(self, event: OutputEvent) -> list[dict[str, Any]]:
        """A choice's role comes first, in a chunk of its own; usage last, where asked for."""
        chunks = []
        if event.choice not in self._begun:
            self._begun.add(event.choice)
            role = {"role": "assistant", "content": "", "refusal": None}
            chunks.append(self._usage.chunk(self._chunk_head, event, self._choice(event, role)))
        match event:
            case TextDelta():
                choice = self._choice(event, {"content": event.text})
                chunks.append(
                    self._usage.chunk(self._chunk_head, event, self._with_tokens(choice, event))
                )
            case Finished():
                chunks.append(
                    self._usage.chunk(
                        self._chunk_head, event, self._choice(event, {}, event.reason.value)
                    )
                )
                chunks += self._usage.last_chunks(self._chunk_head, event)
            case _:
                assert_never(event)
        return chunks

    def full(self, completion: Completion) -> dict[str, Any]:
        choices = [
            self._with_tokens(
                {
                    "index": index,
                    "message": {"role": "assistant", "content": answer.text, "refusal": None},
                    "logprobs": None,
                    "finish_reason": answer.reason.value,
                },
                answer,
            )
            for index, answer in enumerate(completion.choices)
        ]
        return {**self._head, "choices": choices, "usage": usage_body(completion.usage)}

    def _choice(
        self, event: OutputEvent, delta: dict[str, Any], finish_reason: str | None = None
    ) -> dict[str, Any]:
        return {
            "index": event.choice,
            "delta": delta,
            "logprobs": None,
            "finish_reason": finish_reason,
        }

    def _with_tokens(self, choice: dict[str, Any], part: TextDelta | Answer) -> dict[str, Any]:
        if self._logs and part.log_probs:
            choice["logprobs"] = chat_log_probs(part.log_probs)
        if self._tells_ids:
            choice["token_ids"] = list(part.token_ids)
        return choice
