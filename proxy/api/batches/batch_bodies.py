"""The bodies of files and batches. Those of answers are only for the OpenAPI document."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from proxy.api.http.typed_route import QueryParameters
from proxy.api.openai.field_types import Metadata, RequestBody
from proxy.api.openapi.responses import Answer, PageAnswer

Endpoint = Literal["/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/embeddings"]
Status = Literal[
    "validating",
    "failed",
    "in_progress",
    "finalizing",
    "completed",
    "expired",
    "cancelling",
    "cancelled",
]
LEAST_KEEP_S, MOST_KEEP_S = 3_600, 2_592_000
KeepSeconds = Annotated[int, Field(ge=LEAST_KEEP_S, le=MOST_KEEP_S)]
Time = Annotated[int | None, Field(description="Unix time, in seconds.")]


class ExpiresAfter(RequestBody):
    anchor: Literal["created_at"]
    seconds: KeepSeconds


class BatchBody(RequestBody):
    input_file_id: str
    endpoint: Endpoint
    completion_window: Literal["24h"]
    metadata: Metadata | None = None
    output_expires_after: ExpiresAfter | None = None


class FilesQuery(QueryParameters):
    after: str | None = None
    limit: Annotated[int, Field(ge=1, le=10_000)] = 10_000
    order: Literal["asc", "desc"] = "desc"
    purpose: str | None = None


class BatchesQuery(QueryParameters):
    after: str | None = None
    limit: Annotated[int, Field(ge=1, le=100)] = 20


class FileObject(Answer):
    id: str = Field(examples=["file-0196f1d2a3b4c5d6e7f80912"])
    object: Literal["file"]
    bytes: int
    created_at: int
    filename: str
    purpose: Literal["batch", "batch_output"]
    status: Literal["processed"]
    expires_at: int


class DeletedFile(Answer):
    id: str
    object: Literal["file"]
    deleted: bool


class FilePage(PageAnswer):
    data: list[FileObject]
    first_id: str | None
    last_id: str | None


class RequestCounts(Answer):
    total: int
    completed: int
    failed: int


class BatchError(Answer):
    code: str
    line: int | None = Field(description="Of the input file, from 1.")
    message: str
    param: str | None


class BatchErrors(Answer):
    object: Literal["list"]
    data: list[BatchError]


class CachedTokens(Answer):
    cached_tokens: int


class ReasoningTokens(Answer):
    reasoning_tokens: int


class BatchUsage(Answer):
    input_tokens: int
    input_tokens_details: CachedTokens
    output_tokens: int
    output_tokens_details: ReasoningTokens
    total_tokens: int


class Batch(Answer):
    id: str = Field(examples=["batch_0196f1d2a3b4c5d6e7f80912"])
    object: Literal["batch"]
    endpoint: Endpoint
    model: str | None = Field(description="Null where the requests name several.")
    errors: BatchErrors | None
    input_file_id: str
    completion_window: Literal["24h"]
    status: Status
    output_file_id: str | None
    error_file_id: str | None
    created_at: int
    in_progress_at: Time
    expires_at: Time
    finalizing_at: Time
    completed_at: Time
    failed_at: Time
    expired_at: Time
    cancelling_at: Time
    cancelled_at: Time
    request_counts: RequestCounts
    usage: BatchUsage | None
    metadata: dict[str, str] | None


class BatchPage(PageAnswer):
    data: list[Batch]
    first_id: str | None
    last_id: str | None
