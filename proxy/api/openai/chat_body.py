"""The body of POST /v1/chat/completions."""

from __future__ import annotations

from secrets import token_hex
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints, model_validator

from proxy.api.http.validation_errors import FieldError
from proxy.api.openai import message_bodies
from proxy.api.openai.field_types import (
    INT32_MAX,
    ListOf,
    Only,
    RequestBody,
    Text,
    TokenIds,
    TokenLimit,
)
from proxy.api.openai.generation_body import GenerationBody
from proxy.api.openai.message_bodies import Messages
from proxy.api.openai.tool_bodies import AUTO, ToolsBody
from proxy.domain.errors import InvalidRequest
from proxy.domain.request import (
    ChatPrompt,
    GenerationRequest,
    SinglePrompt,
    TextPrompt,
    TokenPrompt,
)

Modality = Annotated[Literal["text", "audio"], Only("text")]

Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
# Fields of SGLang's and vLLM's clients that ask for what this server always does.
AlwaysTrue = Annotated[bool, Only(True)]


class ReasoningBody(RequestBody):
    """The fields of a chat that are about reasoning."""

    reasoning_effort: Effort | None = None
    thinking_token_budget: Annotated[int, Field(ge=0, le=INT32_MAX)] | None = None
    include_reasoning: AlwaysTrue | None = None
    separate_reasoning: AlwaysTrue | None = None
    stream_reasoning: AlwaysTrue | None = None


# Fields that have no effect on a prompt without a chat template, so they are refused with one.
TEMPLATE_FIELDS = (
    "add_generation_prompt",
    "chat_template",
    "chat_template_kwargs",
    "continue_final_message",
    "documents",
    "parallel_tool_calls",
    "reasoning_effort",
    "thinking_token_budget",
    "tool_choice",
    "tools",
    "verbosity",
)


DEFAULT_VERBOSITY = "medium"  # the template need not support it


class Prediction(RequestBody):
    type: Literal["content"]
    content: Text


class ChatCompletionBody(GenerationBody, ReasoningBody, ToolsBody):
    messages: Messages
    max_completion_tokens: TokenLimit | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    modalities: Annotated[ListOf[Modality], Field(min_length=1)] | None = None
    prediction: Prediction | None = None
    verbosity: Literal["low", "medium", "high"] | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    documents: Annotated[ListOf[dict[str, Any]], Field(min_length=1)] | None = None
    chat_template: Annotated[str, StringConstraints(min_length=1, max_length=65_536)] | None = None
    prompt_token_ids: TokenIds | None = None

    @model_validator(mode="after")
    def _rules(self) -> ChatCompletionBody:
        """Checks the rules between fields; the first broken rule is the error."""
        limits = {self.max_tokens, self.max_completion_tokens} - {None}
        if len(limits) > 1:
            raise FieldError(
                "max_completion_tokens",
                "'max_tokens' and 'max_completion_tokens' are the same limit; "
                f"given as {self.max_tokens} and {self.max_completion_tokens}",
            )
        self._check_min_tokens(self.token_limit)
        if self.top_logprobs and not self.logprobs:
            raise FieldError(
                "top_logprobs", "'top_logprobs' is only allowed when 'logprobs' is true"
            )
        if self.continue_final_message and self.add_generation_prompt:
            raise FieldError(
                "continue_final_message",
                "'continue_final_message' and 'add_generation_prompt' exclude each other",
            )
        if self.continue_final_message and self.messages[-1].role != "assistant":
            raise FieldError(
                "continue_final_message",
                "'continue_final_message' needs a message of the assistant at the end",
            )
        budget = self.thinking_token_budget
        if self.nvext is not None or self.prompt_token_ids is not None:
            self._check_prompt_without_template()
        if self.nvext is not None and self.nvext.max_thinking_tokens is not None:
            budget = self.nvext.max_thinking_tokens
        # when the budget is used up, the prompt is sent again, with the reasoning behind it
        if budget is not None and self.truncate_prompt_tokens is not None:
            raise FieldError(
                "truncate_prompt_tokens",
                "'truncate_prompt_tokens' and a thinking budget exclude each other",
            )
        return self

    def _check_prompt_without_template(self) -> None:
        """Refuses fields for the chat template if the prompt does not use it."""
        raw = self.nvext is not None and self.nvext.use_raw_prompt
        ids = "prompt_token_ids" if self.prompt_token_ids else None
        if self.nvext is not None and self.nvext.token_data:
            ids = "nvext.token_data"
        if ids is None and not raw:
            return
        for name in TEMPLATE_FIELDS:
            if getattr(self, name) is not None:
                instead = ids or "nvext.use_raw_prompt"
                raise FieldError(
                    name, f"'{name}' is for the chat template, which '{instead}' does not use"
                )
        if raw and (ids or [message.role for message in self.messages] != ["user"]):
            raise FieldError(
                "nvext.use_raw_prompt",
                "'nvext.use_raw_prompt' needs exactly one message, of the user",
            )

    @property
    def token_limit(self) -> int | None:
        return self.max_tokens or self.max_completion_tokens

    def to_domain(self, caller: str) -> GenerationRequest:
        return GenerationRequest(
            caller=caller,
            id=f"chatcmpl-{token_hex(16)}",
            prompt=self._prompt(),
            max_tokens=self.token_limit,
            tools=tuple(tool.to_domain() for _, tool in self.offered) if self.tools else (),
            dropped_tools=self.dropped,
            tool_choice=AUTO if self.tool_choice is None else self.domain_choice,
            thinking_budget=self.thinking_token_budget,
            offers_server_tools=self.server_tools,
            reports_server_calls=bool(self.server_tool_events),
            calls_in_parallel=self.parallel_tool_calls is not False,
            **self.shared((self.top_logprobs or 0) if self.logprobs else None),
        )

    def _prompt(self) -> SinglePrompt:
        if self.prompt_token_ids is not None:
            return TokenPrompt(ids=tuple(self.prompt_token_ids))
        messages, images = message_bodies.to_domain(self.messages)
        if self.nvext is not None and self.nvext.use_raw_prompt:
            if images:
                raise InvalidRequest(
                    "An image ('image_url') needs the chat template, which "
                    "'nvext.use_raw_prompt' does not use.",
                    param="nvext.use_raw_prompt",
                )
            return TextPrompt(text=messages[0].content or "")
        values: dict[str, Any] = {}
        if self.reasoning_effort is not None:
            values["reasoning_effort"] = self.reasoning_effort
        if self.verbosity not in (None, DEFAULT_VERBOSITY):
            values["verbosity"] = self.verbosity
        if self.documents is not None:
            values["documents"] = self.documents
        continues = bool(self.continue_final_message)
        return ChatPrompt(
            messages=messages,
            images=images,
            adds_generation_prompt=not continues and self.add_generation_prompt is not False,
            continues_last=continues,
            template_values=values,
            callers_values=self.chat_template_kwargs or {},
            template=self.chat_template,
        )
