"""Models of the answers, only for the OpenAPI document: see openai.answer_bodies."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from proxy.api.openai.answer_bodies import AnswerBody, Count


class TextPart(AnswerBody):
    type: Literal["text"]
    text: str = Field(examples=["I am a small model."])


class ThinkingPart(AnswerBody):
    type: Literal["thinking"]
    thinking: str
    signature: str = Field(description="A constant; empty where a stream begins the block.")


class ToolUsePart(AnswerBody):
    type: Literal["tool_use"]
    id: str
    name: str
    input: dict[str, Any]


AnswerPart = Annotated[TextPart | ThinkingPart | ToolUsePart, Field(discriminator="type")]


class OutputDetails(AnswerBody):
    thinking_tokens: Count


class DeltaUsage(AnswerBody):
    """Numbers of tokens, counted by the engine."""

    input_tokens: Count = Field(
        description="Of the prompt, without those that were cached.", examples=[18]
    )
    cache_creation_input_tokens: Literal[0]
    cache_read_input_tokens: Count = Field(
        description="Prompt tokens that came from the prefix cache.", examples=[16]
    )
    output_tokens: Count = Field(examples=[6])
    output_tokens_details: OutputDetails


class MessageUsage(DeltaUsage):
    service_tier: Literal["standard"]


StopReason = Literal["end_turn", "max_tokens", "stop_sequence", "tool_use"]


class MessageHead(AnswerBody):
    id: str = Field(examples=["msg_4f1d"])
    type: Literal["message"]
    role: Literal["assistant"]
    model: str = Field(examples=["demo"])
    usage: MessageUsage
    stop_sequence: str | None = Field(description="The one of `stop_sequences` that ended it.")


class MessageAnswer(MessageHead):
    """An answer that is not streamed."""

    content: list[AnswerPart]
    stop_reason: StopReason


class MessageStart(MessageHead):
    content: Annotated[list[AnswerPart], Field(max_length=0)]
    stop_reason: None


class MessageEnd(AnswerBody):
    stop_reason: StopReason
    stop_sequence: str | None


class PartDelta(AnswerBody):
    """More of a block; one field besides the type, such as `text` for a `text_delta`."""

    type: Literal["text_delta", "thinking_delta", "signature_delta", "input_json_delta"]
    text: str = ""
    thinking: str = ""
    signature: str = ""
    partial_json: str = ""


class MessageEvent(AnswerBody):
    """An event of a stream. Which fields it has depends on its type."""

    type: Literal[
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
        "ping",
    ]
    message: MessageStart | None = None
    index: Count = 0
    content_block: AnswerPart | None = None
    delta: MessageEnd | PartDelta | None = None
    usage: DeltaUsage | None = None


class MessageErrorDetail(AnswerBody):
    type: str = Field(examples=["invalid_request_error"])
    message: str
    details: dict[str, Any] = Field({}, description="What `thread` is refused with, for the SDKs.")


class MessageError(AnswerBody):
    """The body of every error of these routes, and the last event of a stream that fails."""

    type: Literal["error"]
    error: MessageErrorDetail
    request_id: str | None


class TokenCount(AnswerBody):
    input_tokens: Count = Field(examples=[18])
