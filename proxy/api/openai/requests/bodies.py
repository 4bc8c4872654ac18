"""Request bodies of OpenAI's API. What is not here is refused by name; null is not given."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints, model_validator

from triton_openai.proxy.api.bodies.body import FieldError
from triton_openai.proxy.api.openai.requests.fields import (
    INT32_MAX,
    Label,
    ListOf,
    Metadata,
    Text,
    TokenIds,
    TokenLimit,
    only,
)
from triton_openai.proxy.api.openai.requests.fields import RequestBody as RequestBody
from triton_openai.proxy.api.openai.requests.format_body import FormatBody
from triton_openai.proxy.api.openai.requests.message_bodies import MessageBody as MessageBody
from triton_openai.proxy.api.openai.requests.prompt_body import GivenPromptBody, PromptBody
from triton_openai.proxy.api.openai.requests.reasoning_body import ReasoningBody
from triton_openai.proxy.api.openai.requests.sampling_body import SamplingBody
from triton_openai.proxy.api.openai.requests.tool_bodies import ToolsBody
from triton_openai.proxy.api.openai.requests.tool_history import Messages
from triton_openai.proxy.domain.errors import ErrorCode

MOST_CHOICES = 128
ServiceTier = Annotated[
    Literal["auto", "default", "flex", "scale", "priority", "fast"], only("auto", "default")
]
Modality = Annotated[Literal["text", "audio"], only("text")]
RequestId = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._:-]{1,128}$")]


class StreamOptions(RequestBody):
    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None
    include_obfuscation: Annotated[bool, only(False)] | None = None


class GenerationBody(SamplingBody, PromptBody, FormatBody):
    """What chat completions and completions share, beside sampling."""

    model: str
    n: Annotated[int, Field(ge=1, le=MOST_CHOICES)] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    return_token_ids: bool | None = None
    priority: Annotated[int, Field(ge=-INT32_MAX, le=INT32_MAX)] | None = None
    cache_salt: Annotated[str, StringConstraints(min_length=1, max_length=512)] | None = None
    request_id: RequestId | None = None
    user: Label | None = None
    safety_identifier: Label | None = None
    metadata: Metadata | None = None
    store: Annotated[bool, only(False)] | None = None
    service_tier: ServiceTier | None = None
    prompt_cache_key: Label | None = None

    @model_validator(mode="after")
    def _stream_options_need_stream(self) -> GenerationBody:
        if self.stream_options is not None and not self.stream:
            raise FieldError(
                "stream_options", "'stream_options' is only allowed when 'stream' is true"
            )
        return self

    @model_validator(mode="after")
    def _annotations_need_stream(self) -> GenerationBody:
        if self.nvext is not None and self.nvext.annotations and not self.stream:
            raise FieldError(
                "nvext.annotations",
                "'nvext.annotations' are told beside a stream: set 'stream', or ask for "
                "'nvext.extra_fields'",
            )
        return self

    @model_validator(mode="after")
    def _special_tokens_stand_close(self) -> GenerationBody:
        if self.spaces_between_special_tokens and self.skip_special_tokens is False:
            raise FieldError(
                "spaces_between_special_tokens",
                "'spaces_between_special_tokens' is not supported by this server: special tokens "
                "stand in the text as the model wrote them",
                code=ErrorCode.UNSUPPORTED_PARAMETER,
            )
        return self

    @property
    def includes_usage(self) -> bool:
        return bool(self.stream_options and self.stream_options.include_usage)

    @property
    def tells_usage_always(self) -> bool:
        """Without a last chunk, too, unless usage is not to be included at all."""
        told = self.stream_options
        return bool(told and told.continuous_usage_stats and told.include_usage is not False)

    def shared(self, top_log_probs: int | None) -> dict[str, Any]:
        """Fields of a GenerationRequest. vLLM's priority is lower first, the engine's higher."""
        return {
            "model": self.model,
            "sampling": self.sampling(top_log_probs),
            "stop": self.stops,
            "includes_stop": bool(self.include_stop_str_in_output),
            "choices": self.n or 1,
            "reports_usage": self.tells_usage_always,
            "returns_token_ids": bool(self.return_token_ids),
            "skips_special_tokens": self.skip_special_tokens is not False,
            "priority": None if self.priority is None else -self.priority,
            "cache_salt": self.cache_salt,
            "user": self.user,
            "safety_identifier": self.safety_identifier,
            "metadata": self.metadata or {},
            **self.prompt_fields(),
        }

    def _check_min_tokens(self, most: int | None) -> None:
        if most is not None and (self.min_tokens or 0) > most:
            raise FieldError(
                "min_tokens", f"'min_tokens' is {self.min_tokens}, more than the limit of {most}"
            )


# Fields that a prompt without a chat template has no place for.
OF_THE_TEMPLATE = (
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
    def _one_token_limit(self) -> ChatCompletionBody:
        limits = {self.max_tokens, self.max_completion_tokens} - {None}
        if len(limits) > 1:
            raise FieldError(
                "max_completion_tokens",
                "'max_tokens' and 'max_completion_tokens' are the same limit; "
                f"given as {self.max_tokens} and {self.max_completion_tokens}",
            )
        self._check_min_tokens(self.token_limit)
        return self

    @model_validator(mode="after")
    def _top_logprobs_need_logprobs(self) -> ChatCompletionBody:
        if self.top_logprobs and not self.logprobs:
            raise FieldError(
                "top_logprobs", "'top_logprobs' is only allowed when 'logprobs' is true"
            )
        return self

    @model_validator(mode="after")
    def _one_continuation(self) -> ChatCompletionBody:
        if not self.continue_final_message:
            return self
        if self.add_generation_prompt:
            raise FieldError(
                "continue_final_message",
                "'continue_final_message' and 'add_generation_prompt' exclude each other",
            )
        if self.messages[-1].role != "assistant":
            raise FieldError(
                "continue_final_message",
                "'continue_final_message' needs a last message of the assistant",
            )
        return self

    @model_validator(mode="after")
    def _a_prompt_without_template(self) -> ChatCompletionBody:
        """Of the fields that shape a rendered prompt none is ignored."""
        raw = self.nvext is not None and self.nvext.use_raw_prompt
        ids = "prompt_token_ids" if self.prompt_token_ids else None
        if self.nvext is not None and self.nvext.token_data:
            ids = "nvext.token_data"
        instead = ids or ("nvext.use_raw_prompt" if raw else None)
        if instead is None:
            return self
        for name in OF_THE_TEMPLATE:
            if getattr(self, name) is not None:
                raise FieldError(name, f"'{name}' is for the chat template, without '{instead}'")
        if raw and (ids or [message.role for message in self.messages] != ["user"]):
            raise FieldError(
                "nvext.use_raw_prompt",
                "'nvext.use_raw_prompt' takes one message of the user as the prompt",
            )
        return self

    @model_validator(mode="after")
    def _a_cut_prompt_is_not_continued(self) -> ChatCompletionBody:
        """A budget of reasoning sends what was thought again, behind the prompt."""
        budget = self.thinking_token_budget
        if self.nvext is not None and self.nvext.max_thinking_tokens is not None:
            budget = self.nvext.max_thinking_tokens
        if budget is not None and self.truncate_prompt_tokens is not None:
            raise FieldError(
                "truncate_prompt_tokens",
                "'truncate_prompt_tokens' and a budget of reasoning exclude each other",
            )
        return self

    @property
    def takes_raw_prompt(self) -> bool:
        return self.nvext is not None and bool(self.nvext.use_raw_prompt)

    @property
    def token_limit(self) -> int | None:
        return self.max_tokens or self.max_completion_tokens

    @property
    def top_log_probs(self) -> int | None:
        return (self.top_logprobs or 0) if self.logprobs else None


class CompletionBody(GenerationBody, GivenPromptBody):
    """`best_of` 0 asks for no more candidates than `n`."""

    max_tokens: Annotated[int, Field(ge=0, le=INT32_MAX)] | None = None
    best_of: Annotated[int, Field(ge=0, le=20)] | None = None
    logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    echo: bool | None = None
    suffix: str | None = None

    @model_validator(mode="after")
    def _best_of_n(self) -> CompletionBody:
        if self.best_of and self.best_of < (self.n or 1):
            raise FieldError("best_of", f"'best_of' is {self.best_of}, less than 'n'")
        if self.best_of and self.best_of > (self.n or 1) and self.stream:
            raise FieldError("best_of", "the best answers are known at the end: no 'stream'")
        self._check_min_tokens(self.max_tokens)
        return self

    @model_validator(mode="after")
    def _an_answer_of_nothing_is_an_echo(self) -> CompletionBody:
        if self.max_tokens == 0 and not self.echo:
            raise FieldError(
                "max_tokens", "'max_tokens' is 0, which is only allowed when 'echo' is true"
            )
        return self

    @model_validator(mode="after")
    def _a_suffix_is_of_text(self) -> CompletionBody:
        first = self.prompt[0] if self.prompt else ""
        if self.suffix is not None and not isinstance(first, str):
            raise FieldError("suffix", "'suffix' needs a prompt of text")
        if self.suffix is not None and self.echo:
            raise FieldError("suffix", "'suffix' and 'echo' exclude each other")
        if self.suffix is not None and self.nvext is not None and self.nvext.token_data:
            raise FieldError("suffix", "'suffix' and 'nvext.token_data' exclude each other")
        return self

    @model_validator(mode="after")
    def _an_echo_has_no_format(self) -> CompletionBody:
        if self.echo and self.asked_format is not None:
            field = self.asked_format.field
            raise FieldError("echo", f"'echo' and '{field}' exclude each other")
        return self

    @model_validator(mode="after")
    def _completions_do_not_think(self) -> CompletionBody:
        if self.nvext is not None and self.nvext.max_thinking_tokens is not None:
            raise FieldError(
                "nvext.max_thinking_tokens",
                "'nvext.max_thinking_tokens' is of chats: a completion has no reasoning",
                code=ErrorCode.UNSUPPORTED_PARAMETER,
            )
        return self
