"""Bodies of /tokenize and /detokenize. Both go to the first model where they name none."""

from __future__ import annotations

import uuid
from typing import Annotated

from pydantic import Field, model_validator

from proxy.api.body import FieldError
from proxy.api.openai.bodies import MessageBody, RequestBody
from proxy.api.openai.fields import TokenId
from proxy.domain.request import ChatPrompt, GenerationRequest, Prompt, TextPrompt


class TokenizeBody(RequestBody):
    """`add_special_tokens`: by default for a prompt, not for messages, whose template has them."""

    model: str | None = None
    prompt: str | None = None
    messages: Annotated[list[MessageBody], Field(min_length=1)] | None = None
    add_special_tokens: bool | None = None
    return_token_strs: bool | None = None

    @model_validator(mode="after")
    def _one_prompt(self) -> TokenizeBody:
        if (self.prompt is None) is (self.messages is None):
            raise FieldError("prompt", "Give either 'prompt' or 'messages'")
        return self

    def to_domain(self, default_model: str) -> GenerationRequest:
        return GenerationRequest(
            id=f"tokenize-{uuid.uuid4().hex}",
            model=default_model if self.model is None else self.model,
            prompt=self._prompt(),
        )

    def _prompt(self) -> Prompt:
        if self.messages is None:
            return TextPrompt(text=self.prompt or "")
        return ChatPrompt(messages=tuple(message.to_domain() for message in self.messages))


class DetokenizeBody(RequestBody):
    model: str | None = None
    tokens: list[TokenId]
