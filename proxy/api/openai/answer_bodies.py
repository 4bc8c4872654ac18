"""Models of the answers of OpenAI's routes, only for the OpenAPI document.

Renderers build answers as plain dicts, which is faster. Tests validate real answers against these
models, which allow no other fields. Where a route declares no example, the document composes one of
the required fields, and of those with `examples`.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

Count = Annotated[int, Field(ge=0)]
Amount = Annotated[float, Field(ge=0)] | None
FinishReason = Literal["stop", "length", "tool_calls"]
TokenIds = Annotated[
    list[Count], Field(description="The choice's tokens, with `return_token_ids`.")
]
ServiceTier = Annotated[
    Literal["default", "flex", "scale", "priority"],
    Field(description="The tier that was served, with a request's own `service_tier` only."),
]


class AnswerBody(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class PromptDetails(AnswerBody):
    cached_tokens: Count = Field(
        description="Prompt tokens that came from the prefix cache.", examples=[16]
    )
    audio_tokens: Literal[0]


class CompletionDetails(AnswerBody):
    reasoning_tokens: Count = Field(description="Generated tokens that are reasoning.")
    audio_tokens: Literal[0]
    accepted_prediction_tokens: Literal[0]
    rejected_prediction_tokens: Literal[0]


class UsageBody(AnswerBody):
    """Numbers of tokens, counted by the engine."""

    prompt_tokens: Count = Field(examples=[18])
    completion_tokens: Count = Field(examples=[6])
    total_tokens: Count = Field(examples=[24])
    prompt_tokens_details: PromptDetails
    completion_tokens_details: CompletionDetails


class TopLogProb(AnswerBody):
    token: str
    logprob: float = Field(description="Natural logarithm of the probability.")
    bytes: list[Annotated[int, Field(ge=0, le=255)]] = Field(description="UTF-8 of the token.")


class TokenLogProbBody(TopLogProb):
    top_logprobs: list[TopLogProb] = Field(description="The most likely tokens in its place.")


class ChatLogProbs(AnswerBody):
    content: list[TokenLogProbBody]
    refusal: None


class CompletionLogProbs(AnswerBody):
    """One list for each property, all of the same length. A prompt's first token has `null`."""

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float | None] | None]
    text_offset: list[Count] = Field(description="Characters of the text before the token.")


class CalledFunction(AnswerBody):
    name: str
    arguments: str = Field(description="A JSON object, as text.")


class CalledCustom(AnswerBody):
    name: str
    input: str = Field(description="Plain text.")


class AnswerToolCall(AnswerBody):
    """Has what its `type` names."""

    id: str
    type: Literal["function", "custom"]
    function: CalledFunction | None = None
    custom: CalledCustom | None = None


class ServerToolCall(AnswerBody):
    """A call of a tool that the server ran, with `server_tool_events`."""

    index: Count
    id: str
    name: str
    arguments: str
    status: Literal["ok", "failed", "timeout", "too_large", "refused_address", "invalid_arguments"]
    result: str
    duration_ms: float


class AnswerMessage(AnswerBody):
    role: Literal["assistant"]
    content: str | None = Field(
        description="The text; null if there are only calls or reasoning.",
        examples=["I am a small model."],
    )
    refusal: None
    reasoning: str = Field("", description="The model's reasoning, if it has any.")
    reasoning_content: str = Field("", description="The same text as `reasoning`.")
    tool_calls: list[AnswerToolCall] = Field([], description="Calls of the caller's tools.")
    server_tool_calls: list[ServerToolCall] = []


class ChatChoice(AnswerBody):
    index: Count
    message: AnswerMessage
    logprobs: ChatLogProbs | None
    finish_reason: FinishReason
    token_ids: TokenIds = []


class NvExtTiming(AnswerBody):
    request_received_ms: Count = Field(description="Unix time.")
    ttft_ms: float = 0.0
    total_time_ms: float = 0.0
    kv_hit_rate: float = Field(0.0, description="Share of the prompt from the prefix cache.")
    queue_time_ms: Amount = None
    prefill_time_ms: Amount = None
    decode_time_ms: Amount = None


class NvExtWorker(AnswerBody):
    prefill_worker_id: Count
    decode_worker_id: Count


class NvExtAnswer(AnswerBody):
    """What `nvext.extra_fields` asked for."""

    timing: NvExtTiming | None = None
    worker_id: NvExtWorker | None = None


class TimingsBody(AnswerBody):
    """The engine's times, with `include_timings`; null: the engine does not report it."""

    cache_n: Count = Field(description="Prompt tokens that came from the prefix cache.")
    prompt_n: Count = Field(description="Prompt tokens that were computed.")
    prompt_ms: Amount = Field(description="Prefill, from a row to the first token.")
    prompt_per_token_ms: Amount
    prompt_per_second: Amount
    predicted_n: Count = Field(description="Generated tokens.")
    predicted_ms: Amount = Field(description="Decode, from the first token to the last.")
    predicted_per_token_ms: Amount
    predicted_per_second: Amount
    queue_ms: Amount = Field(description="The wait for a row, of the choice that waited most.")


class AnswerHead(AnswerBody):
    id: str = Field(
        description="A prefix and the request's own `request_id`, or a unique one.",
        examples=["chatcmpl-4f1d"],
    )
    created: Count = Field(description="Unix time, in seconds.", examples=[1_767_225_600])
    model: str = Field(examples=["demo"])
    system_fingerprint: str | None = Field(
        description="Changes when the model is rebuilt.", examples=["fp_1f0c5a93d2"]
    )
    service_tier: ServiceTier = "default"
    nvext: NvExtAnswer | None = Field(None, description="With `nvext.extra_fields`.")
    timings: TimingsBody | None = Field(
        None, description="With `include_timings`; in a stream's last chunk."
    )


class ChatCompletion(AnswerHead):
    """An answer that is not streamed."""

    object: Literal["chat.completion"]
    choices: list[ChatChoice]
    usage: UsageBody


class CallPartFunction(AnswerBody):
    name: str = Field("", description="With the first part of a call.")
    arguments: str = Field(description="The next piece of a JSON object's text.")


class CallPartCustom(AnswerBody):
    name: str = Field("", description="With the first part of a call.")
    input: str = Field(description="The next piece of the plain text.")


class ToolCallPart(AnswerBody):
    """A piece of a call: the first has `id`, `type` and the name; later ones add arguments, or the
    input of a custom tool.
    """

    index: Count
    id: str = ""
    type: Literal["function", "custom"] = "function"
    function: CallPartFunction | None = None
    custom: CallPartCustom | None = None


class ChatDelta(AnswerBody):
    """The next piece of the message."""

    role: Literal["assistant"] = Field("assistant", description="In a choice's first chunk.")
    content: str | None = None
    refusal: None = None
    reasoning: str = ""
    reasoning_content: str = ""
    tool_calls: list[ToolCallPart] = []
    server_tool_calls: list[ServerToolCall] = []


class ChatChunkChoice(AnswerBody):
    index: Count
    delta: ChatDelta
    logprobs: ChatLogProbs | None
    finish_reason: FinishReason | None = Field(description="In a choice's last chunk.")
    token_ids: TokenIds = []


class ChatCompletionChunk(AnswerHead):
    """An event of a stream; `choices` is empty in the chunk that has the usage."""

    object: Literal["chat.completion.chunk"]
    choices: list[ChatChunkChoice]
    usage: UsageBody | None = Field(None, description="With `stream_options`.")


class CompletionChoice(AnswerBody):
    index: Count
    text: str = Field(examples=[", there was a fox."])
    logprobs: CompletionLogProbs | None
    finish_reason: FinishReason
    token_ids: TokenIds = []


class CompletionChunkChoice(CompletionChoice):
    finish_reason: FinishReason | None = Field(  # type: ignore[assignment]
        description="In a choice's last chunk."
    )


class TextCompletion(AnswerHead):
    """An answer that is not streamed."""

    object: Literal["text_completion"]
    choices: list[CompletionChoice]
    usage: UsageBody


class TextCompletionChunk(AnswerHead):
    """An event of a stream; `choices` is empty in the chunk that has the usage."""

    object: Literal["text_completion"]
    choices: list[CompletionChunkChoice]
    usage: UsageBody | None = Field(None, description="With `stream_options`.")


class RenderedPrompt(AnswerBody):
    """The prompt and limits that a generation with the same body would have."""

    id: str = Field(examples=["chatcmpl-4f1d"])
    object: Literal["chat.completion.render"]
    model: str = Field(examples=["demo"])
    prompt: str | None = Field(
        description="The prompt's text; null if it was given as tokens.",
        examples=["<|user|>Hi<|assistant|>"],
    )
    prompt_token_ids: list[Count] = Field(examples=[[1, 71, 2]])
    prompt_tokens: Count = Field(examples=[3])
    context_length: Count = Field(examples=[4096])
    max_tokens: Count = Field(
        description="The most tokens that the answer can have.", examples=[4093]
    )
    limited_by: list[str] = Field(
        description="Names of the limits that set `max_tokens`.", examples=[["context_length"]]
    )


class ModelLimits(AnswerBody):
    max_tokens: Count | None = Field(description="Generated tokens of one choice.")
    n: Count | None = Field(description="Choices of one prompt.")
    best_of: Count | None = Field(description="Candidates of one prompt.")
    prompt_tokens: Count | None = Field(description="Tokens of one prompt.")
    timeout_s: Amount = Field(description="Seconds of a generation.")


class ModelPooling(AnswerBody):
    routes: list[str] = Field(examples=[["/v1/embeddings", "/v1/rerank", "/v1/score"]])
    dimensions: list[Count] | None = Field(
        description="Of the vectors: the model's own, then those that they can be cut to.",
        examples=[[256, 128, 64]],
    )


class ModelBody(AnswerBody):
    id: str = Field(description="The model's name, or an alias.", examples=["demo"])
    object: Literal["model"]
    created: Count = Field(examples=[1_767_225_600])
    owned_by: str = Field(examples=["system"])
    root: str = Field(
        description="The name of the model itself; of a LoRA adapter, that of its base model.",
        examples=["demo"],
    )
    parent: str | None = Field(description="The base model of a LoRA adapter.")
    context_length: Count | None = Field(
        description="Tokens of prompt and answer together; null: nobody has said it.",
        examples=[4096],
    )
    max_model_len: Count | None = Field(examples=[4096])
    max_output_tokens: Count | None = Field(examples=[4096])
    default_max_tokens: Count | None = Field(
        description="max_tokens of a request that gives none; null: what the context leaves, and "
        "for completions 16."
    )
    limits: ModelLimits = Field(description="What one request may ask for; null: no limit.")
    pooling: ModelPooling | None = Field(
        description="Of a model that embeds or scores texts; null: it generates, or its engine "
        "alone knows."
    )
    tool_parser: str | None
    reasoning_parser: str | None
    response_template: str | None = Field(
        description="Why the checkpoint's response template is not in use; null: it is, or the "
        "checkpoint has none."
    )
    capabilities: list[str] = Field(
        description="Optional parameters that the model takes.", examples=[["seed", "top_p"]]
    )
    deprecation_date: str = Field(
        "",
        description="From this day on callers should use another model; absent: no date is set.",
        examples=["2026-12-31"],
    )
    sunset: str | None = Field(description="From this day on the model may be gone.")


class ModelList(AnswerBody):
    object: Literal["list"]
    data: list[ModelBody]
