"""The body of POST /v1/responses, and of the routes that take a part of it.

Every field is honored, or a hint without effect, or refused by name: docs/api.md has the list.
"""

from __future__ import annotations

from collections.abc import Iterable
from secrets import token_hex
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag, model_validator
from pydantic.json_schema import SkipJsonSchema

from proxy.api.http.validation_errors import FieldError
from proxy.api.openai.chat_body import DEFAULT_VERBOSITY, Effort
from proxy.api.openai.field_types import (
    INT32_MAX,
    AtMostMessages,
    AtMostTools,
    DictOf,
    DroppedTool,
    Json,
    ListOf,
    RequestBody,
    TokenLimit,
    text_or_list,
)
from proxy.api.openai.generation_body import GenerationBody, StreamOptions
from proxy.api.openai.response_format import SchemaName
from proxy.api.responses.input_items import Items
from proxy.api.responses.tool_bodies import (
    AnyChoice,
    AnyTool,
    FreeTextTool,
    FunctionTool,
    Offer,
    check_names,
)
from proxy.domain.errors import ErrorCode, InvalidRequest, unsupported
from proxy.domain.image import Image
from proxy.domain.model import ModelCard
from proxy.domain.request import ChatPrompt, GenerationRequest, Message
from proxy.domain.server_tools import ServerTool
from proxy.language.structured.constraint_request import ConstraintRequest, Form

ResponseId = Annotated[str, Field(min_length=1, max_length=128)]


def _refuse(given: Any) -> Any:
    raise FieldError(
        None, "it is not a parameter of this endpoint", code=ErrorCode.UNSUPPORTED_PARAMETER
    )


# A field of chats that this API does not have.
Absent = SkipJsonSchema[Annotated[Any, BeforeValidator(_refuse)]]


class PlainTextFormat(RequestBody):
    type: Literal["text"]


class JsonObjectFormat(RequestBody):
    type: Literal["json_object"]


class NamedSchemaFormat(RequestBody):
    type: Literal["json_schema"]
    name: SchemaName
    description: str | None = None
    schema_: Json = Field(alias="schema")
    strict: bool | None = None


AnyFormat = Annotated[
    PlainTextFormat | JsonObjectFormat | NamedSchemaFormat, Field(discriminator="type")
]


class TextOptions(RequestBody):
    format: AnyFormat | None = None
    verbosity: Literal["low", "medium", "high"] | None = None


class Reasoning(RequestBody):
    """Answers have the reasoning itself, so a summary is a hint without effect. So is `context`:
    the model's template says whose reasoning it reads.
    """

    effort: Effort | None = None
    context: str | None = None
    summary: Literal["auto", "concise", "detailed"] | None = None
    generate_summary: Literal["auto", "concise", "detailed"] | None = None


class ResponseStreamOptions(StreamOptions):
    include_usage: Absent = None
    continuous_usage_stats: Absent = None


ENCRYPTED, LOG_PROBS = "reasoning.encrypted_content", "message.output_text.logprobs"
# The first two add to an answer; the others are of hosted tools, and of what is always included.
Includable = Literal[
    "reasoning.encrypted_content",
    "message.output_text.logprobs",
    "message.input_image.image_url",
    "file_search_call.results",
    "web_search_call.results",
    "web_search_call.action.sources",
    "code_interpreter_call.outputs",
    "computer_call_output.output.image_url",
]
Input = Annotated[
    Annotated[str, Tag("<text>")] | Annotated[Items, Tag("<list>")], Discriminator(text_or_list)
]


class ResponseBody(GenerationBody):
    """Without `input`, the conversation of `previous_response_id` is continued as it is.
    `client_metadata` is what Codex says about itself, and has no effect.
    """

    input: Annotated[Input | None, AtMostMessages] = None
    instructions: str | None = None
    previous_response_id: ResponseId | None = None
    max_output_tokens: TokenLimit | None = None
    max_tool_calls: Annotated[int, Field(ge=1, le=INT32_MAX)] | None = None
    tools: Annotated[ListOf[AnyTool] | None, AtMostTools] = None
    tool_choice: AnyChoice | None = None
    parallel_tool_calls: bool | None = None
    server_tools: bool | None = None
    text: TextOptions | None = None
    reasoning: Reasoning | None = None
    thinking_token_budget: Annotated[int, Field(ge=0, le=INT32_MAX)] | None = None
    chat_template_kwargs: Json | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    include: ListOf[Includable] | None = None
    truncation: Literal["auto", "disabled"] | None = None
    store: bool | None = None
    background: bool | None = None
    client_metadata: DictOf[str, str] | None = None
    stream_options: ResponseStreamOptions | None = None
    # What chats have, and responses have not, or under another name.
    max_tokens: Absent = None
    n: Absent = None
    include_timings: Absent = None
    return_token_ids: Absent = None
    return_tokens_as_token_ids: Absent = None
    truncate_prompt_tokens: Absent = None
    truncation_side: Absent = None
    request_id: Absent = None
    nvext: Absent = None

    @model_validator(mode="after")
    def _rules(self) -> ResponseBody:
        if self.input is None and self.previous_response_id is None:
            raise FieldError("input", "Field required", code=ErrorCode.MISSING_PARAMETER)
        if self.background and self.store is False:
            raise FieldError(
                "background", "'background' needs 'store': the response is read where it is kept"
            )
        self._check_min_tokens(self.max_output_tokens)
        check_names(self.tools or ())
        return self

    @property
    def asked_format(self) -> ConstraintRequest | None:
        """Raises InvalidRequest: two fields set the format."""
        own, other = self._text_format, super().asked_format
        if own is not None and other is not None:
            raise InvalidRequest(
                f"'text.format' and '{other.field}' both set the format of the answer: use one",
                param=other.field,
            )
        return own or other

    @property
    def _text_format(self) -> ConstraintRequest | None:
        found = None if self.text is None else self.text.format
        if isinstance(found, JsonObjectFormat):
            return ConstraintRequest(field="text.format", form=Form.JSON_OBJECT)
        if not isinstance(found, NamedSchemaFormat):
            return None
        return ConstraintRequest(
            field="text.format.schema",
            form=Form.SCHEMA,
            value=found.schema_,
            is_strict=bool(found.strict),
        )

    @property
    def log_probs(self) -> int | None:
        """How many alternatives; None where no log-probabilities are asked for."""
        is_asked = bool(self.top_logprobs) or LOG_PROBS in (self.include or ())
        return (self.top_logprobs or 0) if is_asked else None

    def check_max_calls(self, servers: Iterable[ServerTool]) -> None:
        """Raises InvalidRequest: `max_tool_calls` would have to bound calls of the server's own
        tools.
        """
        if self.max_tool_calls is not None and self.server_tools is not False and any(servers):
            raise unsupported(
                "'max_tool_calls' is not supported by this server, whose operator bounds the calls "
                "of its own tools: leave it out",
                param="max_tool_calls",
            )

    def to_domain(
        self, caller: str, offer: Offer, messages: tuple[Message, ...], images: tuple[Image, ...]
    ) -> GenerationRequest:
        values: Json = {}
        if self.reasoning is not None and self.reasoning.effort is not None:
            values["reasoning_effort"] = self.reasoning.effort
        if self.text is not None and self.text.verbosity not in (None, DEFAULT_VERBOSITY):
            values["verbosity"] = self.text.verbosity
        return GenerationRequest(
            caller=caller,
            id=f"resp_{token_hex(16)}",
            prompt=ChatPrompt(
                messages=messages,
                images=images,
                template_values=values,
                callers_values=self.chat_template_kwargs or {},
            ),
            max_tokens=self.max_output_tokens,
            lowers_max_tokens=True,
            tools=tuple(one.tool for one in offer.tools.values()),
            dropped_tools=offer.dropped,
            tool_choice=offer.domain_choice(self.tool_choice),
            thinking_budget=self.thinking_token_budget,
            offers_server_tools=self.server_tools,
            calls_in_parallel=self.parallel_tool_calls is not False,
            **self.shared(self.log_probs),
        )

    def echo(self, card: ModelCard) -> Json:
        """The fields of a response that repeat the request, with what holds where it has none."""
        defaults, reasoning, text = card.sampling, self.reasoning, self.text
        formatted = None if text is None else text.format
        return {
            "background": bool(self.background),
            "conversation": None,
            "frequency_penalty": _first(self.frequency_penalty, defaults.frequency_penalty, 0.0),
            "instructions": self.instructions,
            "max_output_tokens": self.max_output_tokens,
            "max_tool_calls": self.max_tool_calls,
            "metadata": self.metadata or {},
            "parallel_tool_calls": self.parallel_tool_calls is not False,
            "presence_penalty": _first(self.presence_penalty, defaults.presence_penalty, 0.0),
            "previous_response_id": self.previous_response_id,
            "prompt_cache_key": self.prompt_cache_key,
            "prompt_cache_retention": self.prompt_cache_retention,
            "reasoning": {
                "effort": None if reasoning is None else reasoning.effort,
                "summary": None if reasoning is None else reasoning.summary,
            },
            "safety_identifier": self.safety_identifier,
            "service_tier": self.service_tier or "default",
            "temperature": _first(self.temperature, defaults.temperature, 1.0),
            "text": {
                "format": {"type": "text"} if formatted is None else _written(formatted),
                "verbosity": DEFAULT_VERBOSITY
                if text is None
                else text.verbosity or DEFAULT_VERBOSITY,
            },
            "tool_choice": "auto" if self.tool_choice is None else _written(self.tool_choice),
            "tools": [_tool(one) for one in self.tools or () if not isinstance(one, DroppedTool)],
            "top_logprobs": self.top_logprobs or 0,
            "top_p": _first(self.top_p, defaults.top_p, 1.0),
            "truncation": self.truncation or "disabled",
            "user": self.user,
        }


def _first(*values: float | None) -> float | None:
    return next((value for value in values if value is not None), None)


def _written(given: RequestBody | str) -> Any:
    return given if isinstance(given, str) else given.model_dump(by_alias=True, exclude_none=True)


def _tool(tool: RequestBody) -> Json:
    if isinstance(tool, FreeTextTool):
        return {"format": {"type": "text"}, **_written(tool)}
    written: Json = _written(tool)
    if not isinstance(tool, FunctionTool):
        return written
    return {"description": None, "parameters": None, "strict": False, **written}
