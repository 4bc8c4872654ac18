"""Models of the answers, only for the OpenAPI document: see openai.answer_bodies."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from proxy.api.openai.answer_bodies import AnswerBody, Count, TokenLogProbBody
from proxy.api.openai.field_types import Json

Status = Literal["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"]
ItemStatus = Literal["in_progress", "completed", "incomplete"]


class OutputText(AnswerBody):
    type: Literal["output_text"]
    text: str = Field(examples=["I am a small model."])
    annotations: Annotated[list[Json], Field(max_length=0)]
    logprobs: list[TokenLogProbBody] = Field(description="With `include` or `top_logprobs`.")


class ReasoningText(AnswerBody):
    type: Literal["reasoning_text"]
    text: str


OutputPart = Annotated[OutputText | ReasoningText, Field(discriminator="type")]


class ItemOfOutput(AnswerBody):
    id: str = Field(examples=["msg_4f1d0"])
    status: ItemStatus


class OutputMessage(ItemOfOutput):
    type: Literal["message"]
    role: Literal["assistant"]
    content: list[OutputText]


class OutputReasoning(ItemOfOutput):
    type: Literal["reasoning"]
    summary: Annotated[list[Json], Field(max_length=0)]
    content: list[ReasoningText]
    encrypted_content: str = Field(
        "", description="With `include`: for clients that send back nothing else of it."
    )


class CallOutput(ItemOfOutput):
    call_id: str
    name: str
    namespace: str = Field("", description="Of a tool that was offered in one.")


class FunctionCall(CallOutput):
    type: Literal["function_call"]
    arguments: str


class CustomToolCall(CallOutput):
    type: Literal["custom_tool_call"]
    input: str


class ToolSearchCall(ItemOfOutput):
    """A call of the caller's own search for tools."""

    type: Literal["tool_search_call"]
    execution: Literal["client"]
    call_id: str
    arguments: Json


class ServerCall(ItemOfOutput):
    """A call of a tool of the server's own."""

    type: Literal["mcp_call"]
    server_label: Literal["server"]
    name: str
    arguments: str
    output: str | None
    error: str | None


AnyOutput = Annotated[
    OutputMessage | OutputReasoning | FunctionCall | CustomToolCall | ToolSearchCall | ServerCall,
    Field(discriminator="type"),
]


class InputTokensDetails(AnswerBody):
    cached_tokens: Count = Field(description="Prompt tokens that came from the prefix cache.")
    cache_write_tokens: Literal[0]


class OutputTokensDetails(AnswerBody):
    reasoning_tokens: Count


class ResponseUsage(AnswerBody):
    """Numbers of tokens, counted by the engine."""

    input_tokens: Count = Field(examples=[18])
    input_tokens_details: InputTokensDetails
    output_tokens: Count = Field(examples=[6])
    output_tokens_details: OutputTokensDetails
    total_tokens: Count = Field(examples=[24])


class ErrorOfResponse(AnswerBody):
    code: Literal["server_error", "rate_limit_exceeded", "invalid_prompt"]
    message: str


class IncompleteDetails(AnswerBody):
    reason: Literal["max_output_tokens"]


class ResponseResource(AnswerBody):
    """A response. Behind `usage`, the fields of the request, with what holds where it has none."""

    id: str = Field(examples=["resp_4f1d"])
    object: Literal["response"]
    created_at: Count = Field(examples=[1767225600])
    completed_at: Count | None
    status: Status
    model: str = Field(examples=["demo"])
    output: list[AnyOutput]
    error: ErrorOfResponse | None
    incomplete_details: IncompleteDetails | None
    usage: ResponseUsage | None
    store: bool = Field(description="Whether it can be read later.")
    background: bool
    conversation: None
    frequency_penalty: float
    instructions: str | None
    max_output_tokens: Count | None
    max_tool_calls: Count | None
    metadata: dict[str, str]
    parallel_tool_calls: bool
    presence_penalty: float
    previous_response_id: str | None
    prompt_cache_key: str | None
    prompt_cache_retention: str | None
    reasoning: Json
    safety_identifier: str | None
    service_tier: str = Field(examples=["default"])
    temperature: float
    text: Json
    tool_choice: str | Json = Field(examples=["auto"])
    tools: list[Json]
    top_logprobs: Count
    top_p: float
    truncation: Literal["auto", "disabled"]
    user: str | None


class ResponseEvent(AnswerBody):
    """An event of a stream. Which fields it has depends on its type."""

    type: str = Field(examples=["response.output_text.delta"])
    sequence_number: Count
    response: ResponseResource | None = None
    output_index: Count = 0
    item: AnyOutput | None = None
    item_id: str = ""
    content_index: Count = 0
    part: OutputPart | None = None
    delta: str = ""
    logprobs: list[TokenLogProbBody] = Field([])
    text: str = ""
    name: str = ""
    arguments: str = ""
    input: str = ""


class ErrorDetails(AnswerBody):
    message: str
    type: str
    param: str | None
    code: str | None


class ResponseError(AnswerBody):
    """The event before `response.failed`. The same fields stand in `error`, where SDKs look."""

    type: Literal["error"]
    sequence_number: Count
    code: str | None
    message: str
    param: str | None
    error: ErrorDetails


class DeletedResponse(AnswerBody):
    id: str
    object: Literal["response"]
    deleted: Literal[True]


class InputItemList(AnswerBody):
    object: Literal["list"]
    data: list[Json]
    first_id: str | None
    last_id: str | None
    has_more: bool


class InputTokens(AnswerBody):
    object: Literal["response.input_tokens"]
    input_tokens: Count = Field(examples=[18])


class CompactionOutput(AnswerBody):
    id: str
    type: Literal["compaction"]
    encrypted_content: str


class CompactedResponse(AnswerBody):
    id: str
    object: Literal["response.compaction"]
    created_at: Count
    output: list[CompactionOutput]
    usage: ResponseUsage
