"""Bodies and answers of /tokenize and /detokenize. Without `model` both mean the first model.

Apart from the routes, which the sandbox that parses bodies would have to import.
"""

from __future__ import annotations

import uuid
from typing import Annotated

from pydantic import ConfigDict, Field, model_validator

from proxy.api.http.validation_errors import FieldError
from proxy.api.openai.field_types import (
    AnyTokenIds,
    AtMostMessages,
    AtMostTools,
    DroppedTool,
    ListOf,
    RequestBody,
)
from proxy.api.openai.message_bodies import MessageBody, check_tool_history, to_domain
from proxy.api.openai.tool_bodies import ToolBody
from proxy.api.openapi.responses import Answer
from proxy.domain.model import ModelCard
from proxy.domain.request import ChatPrompt, GenerationRequest, Prompt, TextPrompt


class TokenizeBody(RequestBody):
    """`add_special_tokens`: on by default for a prompt; chat templates write their own."""

    model_config = ConfigDict(
        json_schema_extra={
            "oneOf": [
                {"required": ["prompt"], "properties": {"prompt": {"type": "string"}}},
                {"required": ["messages"], "properties": {"messages": {"type": "array"}}},
            ]
        }
    )

    model: str | None = Field(None, description="A public name or alias; default: the first model.")
    prompt: str | None = Field(None, description="A text.")
    messages: Annotated[ListOf[MessageBody], Field(min_length=1), AtMostMessages] | None = Field(
        None, description="A chat, which the model's chat template turns into text."
    )
    add_special_tokens: bool | None = Field(
        None, description="Default: true for a prompt, false for messages."
    )
    return_token_strs: bool | None = Field(
        None, description="True: the answer has each token's text."
    )
    tools: Annotated[ListOf[ToolBody], AtMostTools] | None = Field(
        None, description="The tools that the chat template writes into the prompt."
    )
    add_generation_prompt: bool | None = Field(
        None, description="Whether the prompt ends where the answer begins; default: true."
    )
    continue_final_message: bool | None = Field(
        None, description="True: the prompt ends within the last message."
    )

    @model_validator(mode="after")
    def _one_prompt(self) -> TokenizeBody:
        if (self.prompt is None) is (self.messages is None):
            raise FieldError("prompt", "Give either 'prompt' or 'messages'")
        for name in ("tools", "add_generation_prompt", "continue_final_message"):
            if self.messages is None and getattr(self, name) is not None:
                raise FieldError(name, f"'{name}' is only allowed with 'messages'")
        return self

    @model_validator(mode="after")
    def _calls_have_results(self) -> TokenizeBody:
        """Without a generation prompt, the last calls may lack results: no answer follows."""
        check_tool_history(self.messages or (), may_end_open=self.add_generation_prompt is False)
        return self

    def to_domain(self, card: ModelCard, caller: str) -> GenerationRequest:
        """`card`: of the model that it names, or of the first one."""
        return GenerationRequest(
            caller=caller,
            id=f"tokenize-{uuid.uuid4().hex}",
            model=card.name if self.model is None else self.model,
            prompt=self._prompt(),
            adds_special_tokens=self.add_special_tokens,
            tools=tuple(
                tool.to_domain() for tool in self.tools or () if not isinstance(tool, DroppedTool)
            ),
        )

    def _prompt(self) -> Prompt:
        if self.messages is None:
            return TextPrompt(text=self.prompt or "")
        continues = bool(self.continue_final_message)
        messages, images = to_domain(self.messages)
        return ChatPrompt(
            messages=messages,
            images=images,
            adds_generation_prompt=not continues and self.add_generation_prompt is not False,
            continues_last=continues,
        )


class DetokenizeBody(RequestBody):
    model: str | None = Field(None, description="A public name or alias; default: the first model.")
    tokens: AnyTokenIds = Field(
        description="Token ids of the model's vocabulary.", examples=[[72, 101]]
    )


class Tokens(Answer):
    count: int = Field(ge=0, examples=[2])
    max_model_len: int = Field(
        ge=0, description="Tokens that the model's context holds.", examples=[4096]
    )
    tokens: list[int] = Field(examples=[[1, 71]])
    token_strs: list[str] | None = Field(
        description="The tokens' texts, with `return_token_strs`.", examples=[["", "Hello"]]
    )


class Detokenized(Answer):
    prompt: str = Field(description="The text, without special tokens.", examples=["Hello"])
