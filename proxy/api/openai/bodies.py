"""Request bodies of OpenAI's API. A field that is not here is refused by name."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    StringConstraints,
    Tag,
    model_validator,
)

from proxy.api.body import FieldError
from proxy.domain.request import Message, Sampling

MAX_STOPS = 16
INT32_MAX = 2**31 - 1


def _text_or_list(value: Any) -> str:
    """Which member of a union; tags in angle brackets stay out of error paths."""
    return "<list>" if isinstance(value, list) else "<text>"


def _text_list_or_ids(value: Any) -> str:
    is_ids = isinstance(value, list) and value and all(type(item) is int for item in value)
    return "<ids>" if is_ids else _text_or_list(value)


class RequestBody(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class TextPart(RequestBody):
    type: Literal["text"]
    text: str


MessageContent = Annotated[
    Annotated[str, Tag("<text>")] | Annotated[list[TextPart], Tag("<list>"), Field(min_length=1)],
    Discriminator(_text_or_list),
]
StopString = Annotated[str, StringConstraints(min_length=1, max_length=1024)]
Stop = Annotated[
    Annotated[StopString, Tag("<text>")]
    | Annotated[list[StopString], Tag("<list>"), Field(max_length=MAX_STOPS)],
    Discriminator(_text_or_list),
]
TextOrIds = Annotated[
    Annotated[str, Tag("<text>")]
    | Annotated[list[str], Tag("<list>"), Field(min_length=1, max_length=1)]
    | Annotated[list[Annotated[int, Field(ge=0, le=INT32_MAX)]], Tag("<ids>")],
    Discriminator(_text_list_or_ids),
]
TokenLimit = Annotated[int, Field(ge=1, le=INT32_MAX)]
MetadataKey = Annotated[str, StringConstraints(min_length=1, max_length=64)]
MetadataValue = Annotated[str, StringConstraints(max_length=512)]


class MessageBody(RequestBody):
    role: Literal["system", "developer", "user", "assistant"]
    content: MessageContent
    name: Annotated[str, StringConstraints(min_length=1, max_length=64)] | None = None

    def to_domain(self) -> Message:
        parts = self.content
        content = parts if isinstance(parts, str) else "".join(part.text for part in parts)
        return Message(role=self.role, content=content, name=self.name)


class StreamOptions(RequestBody):
    include_usage: bool | None = None


class GenerationBody(RequestBody):
    """What chat completions and completions share."""

    model: str
    max_tokens: TokenLimit | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    seed: Annotated[int, Field(ge=-(2**63), le=2**63 - 1)] | None = None
    stop: Stop | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    user: Annotated[str, StringConstraints(max_length=512)] | None = None
    metadata: Annotated[dict[MetadataKey, MetadataValue], Field(max_length=16)] | None = None

    @model_validator(mode="after")
    def _stream_options_need_stream(self) -> GenerationBody:
        if self.stream_options is not None and not self.stream:
            raise FieldError(
                "stream_options", "'stream_options' is only allowed when 'stream' is true"
            )
        return self

    @property
    def sampling(self) -> Sampling:
        return Sampling(temperature=self.temperature, top_p=self.top_p, seed=self.seed)

    @property
    def stops(self) -> tuple[str, ...]:
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())

    @property
    def includes_usage(self) -> bool:
        return bool(self.stream_options and self.stream_options.include_usage)


class ChatCompletionBody(GenerationBody):
    messages: Annotated[list[MessageBody], Field(min_length=1)]
    max_completion_tokens: TokenLimit | None = None

    @model_validator(mode="after")
    def _one_token_limit(self) -> ChatCompletionBody:
        limits = {self.max_tokens, self.max_completion_tokens} - {None}
        if len(limits) > 1:
            raise FieldError(
                "max_completion_tokens",
                "'max_tokens' and 'max_completion_tokens' are the same limit; "
                f"given as {self.max_tokens} and {self.max_completion_tokens}",
            )
        return self


class CompletionBody(GenerationBody):
    prompt: TextOrIds
