"""Answers of /admin/v1/requests, as the OpenAPI document describes them."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class Answer(BaseModel):
    model_config = ConfigDict(extra="forbid")


class RequestFields(Answer):
    """What the request's log line has; fields that it does not have are left out."""

    id: str = Field(description="The header x-request-id of the answer.")
    answer_id: str = Field("", description="The answer's own id, such as chatcmpl-….")
    began_at: str = Field(description="In UTC, ISO 8601.")
    method: str = ""
    path: str = ""
    status: int = Field(0, description="Of the HTTP answer.")
    tenant: str = ""
    key_id: str = ""
    model: str = Field("", description="By public name.")
    finish: str = Field("", description="Why the answer ended; abandoned: the client disconnected.")
    error: str = Field("", description="The error's code.")
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    ttft_ms: float = Field(0, description="Until the first token.")
    queue_ms: float = Field(0, description="Waiting for a row, in the proxy and in the engine.")
    inference_ms: float = Field(0, description="Of the generation, without queue_ms.")
    duration_ms: float
    resent: int = Field(0, description="Streams that were sent again before their first token.")
    continued: int = Field(0, description="Streams that another engine stream continued.")
    idempotency: str = Field("", description="What became of its Idempotency-Key.")
    capped_priority: int = Field(0, description="The priority it got, lower than it asked for.")
    endpoints: list[str] = Field([], description="Those that sent tokens of it.")
    trace_id: str = ""
    dropped_stages: int = Field(0, description="How many stages were too many to keep.")


class StageAnswer(Answer):
    name: str
    begin_ms: float = Field(description="After the request's begin.")
    duration_ms: float
    parent: int | None = Field(description="Place, in this list, of the stage that it is part of.")
    error: str | None = Field(description="Class of the exception that ended it.")
    attributes: dict[str, str | float | bool | None]


class RequestAnswer(RequestFields):
    stages: list[StageAnswer] = Field(description="In the order in which they began to be timed.")


class RequestList(Answer):
    object: Literal["list"]
    data: list[RequestFields] = Field(description="Newest first.")
    kept_at_most: int = Field(description="By this proxy: RECENT_REQUESTS.")
