"""/admin/v1/requests: what the requests that ended last were, and where their time went."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query
from pydantic import Field, StringConstraints
from starlette.responses import JSONResponse, Response

from proxy.api.http.body_reader import BodyReader
from proxy.api.http.typed_route import QueryParameters, typed_router
from proxy.api.openapi.responses import Answer, ListAnswer, answers
from proxy.api.pools.operator import actor
from proxy.domain.errors import ErrorCode, RequestError, echoed
from proxy.telemetry.recent_requests import RecentRequests

Name = Annotated[str, StringConstraints(min_length=1, max_length=256)]


class RequestsQuery(QueryParameters):
    limit: Annotated[int, Field(ge=1, le=200)] = Field(50, description="How many at most.")
    model: Name | None = Field(None, description="Only requests for this model, by public name.")
    tenant: Name | None = Field(None, description="Only this tenant's requests.")
    key_id: Name | None = Field(None, description="Only requests of the key with this id.")
    error: Name | None = Field(None, description="Only requests that got an error of this code.")
    min_ms: Annotated[float, Field(ge=0)] | None = Field(
        None, description="Only requests that took at least so long."
    )
    failed: bool | None = Field(
        None, description="Only requests that got an error; false: only those that got none."
    )


class RequestFields(Answer):
    """What the request's log line has; fields that it does not have are left out."""

    id: str = Field(
        description="The header x-request-id of the answer.",
        examples=["req_6f1c0d5e2b7a4c3f9e8d7c6b5a493827"],
    )
    answer_id: str = Field(
        "",
        description="The answer's own id, such as chatcmpl-….",
        examples=["chatcmpl-5f0c6a1b2d3e4f50"],
    )
    request_trace: str = Field("", description="The caller's header x-request-trace.")
    began_at: str = Field(
        description="In UTC, ISO 8601.", examples=["2026-03-01T12:00:00.250+00:00"]
    )
    method: str = Field("", examples=["POST"])
    path: str = Field("", examples=["/v1/chat/completions"])
    status: int = Field(0, description="Of the HTTP answer.", examples=[200])
    tenant: str = Field("", examples=["acme"])
    key_id: str = Field("", examples=["k3x9q27bt0mz"])
    model: str = Field("", description="By public name.", examples=["demo"])
    finish: str = Field(
        "",
        description="Why the answer ended; abandoned: the client disconnected.",
        examples=["stop"],
    )
    error: str = Field("", description="The error's code.")
    prompt_tokens: int = Field(0, examples=[21])
    cached_tokens: int = Field(0, examples=[16])
    completion_tokens: int = Field(0, examples=[48])
    ttft_ms: float = Field(0, description="Until the first token.", examples=[31.4])
    queue_ms: float = Field(0, description="Waiting for a row, in the proxy and in the engine.")
    inference_ms: float = Field(0, description="Of the generation, without queue_ms.")
    duration_ms: float = Field(examples=[412.9])
    resent: int = Field(0, description="Streams that were sent again before their first token.")
    continued: int = Field(0, description="Streams that another engine stream continued.")
    idempotency: str = Field("", description="What became of its Idempotency-Key.")
    capped_priority: int = Field(0, description="The priority it got, lower than it asked for.")
    clamped_max_tokens: int = Field(0, description="Its `max_tokens`, lower than it asked for.")
    dropped_tools: list[str] = Field([], description="Types of offered tools it was not shown.")
    endpoints: list[str] = Field([], description="Those that sent tokens of it.")
    trace_id: str = ""
    dropped_stages: int = Field(
        0, description="Number of stages that were not kept, because there were too many."
    )


class StageAnswer(Answer):
    name: str = Field(examples=["prefill"])
    begin_ms: float = Field(description="After the request's begin.", examples=[3.0])
    duration_ms: float = Field(examples=[27.5])
    parent: int | None = Field(description="Place, in this list, of the stage that it is part of.")
    error: str | None = Field(description="Class of the exception that ended it.")
    attributes: dict[str, str | float | bool | None]


class RequestAnswer(RequestFields):
    stages: list[StageAnswer] = Field(description="In the order in which they began to be timed.")


class RequestList(ListAnswer):
    data: list[RequestFields] = Field(description="Newest first.")
    kept_at_most: int = Field(description="By this proxy.", examples=[1000])


def routes(recent: RecentRequests, *, bodies: BodyReader) -> APIRouter:
    router = typed_router(bodies, "/admin/v1/requests", tag="requests")

    @router.get("", responses=answers(RequestList, 400))
    async def list_requests(query: Annotated[RequestsQuery, Query()]) -> Response:
        """Requests that have ended, newest first, without their stages."""
        actor()
        found = recent.last(
            query.limit,
            model=query.model,
            tenant=query.tenant,
            key_id=query.key_id,
            error=query.error,
            min_ms=query.min_ms,
            failed=query.failed,
        )
        return JSONResponse({"object": "list", "data": found, "kept_at_most": recent.most})

    @router.get("/{request}", responses=answers(RequestAnswer))
    async def show_request(
        request: Annotated[
            str, Path(min_length=1, description="The answer's `x-request-id`, or its `id`.")
        ],
    ) -> Response:
        """One request that has ended, with its stages."""
        actor()
        if (found := recent.find(request)) is None:
            raise RequestError(
                f"No request {echoed(request)} is among the last {recent.most} that this proxy "
                "keeps. GET /admin/v1/requests lists them; the log has earlier ones, other proxies "
                "have theirs.",
                code=ErrorCode.REQUEST_NOT_FOUND,
                param="request",
            )
        return JSONResponse(found)

    return router
