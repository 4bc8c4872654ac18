"""/admin/v1/requests: the requests that ended last."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query
from starlette.responses import JSONResponse, Response

from proxy.api.http.body_reader import BodyReader
from proxy.api.http.typed_route import typed_router
from proxy.api.openapi.responses import answers
from proxy.api.pools.operator import actor
from proxy.api.recent.requests_answers import RequestAnswer, RequestList
from proxy.api.recent.requests_query import RequestsQuery
from proxy.domain.errors import ErrorCode, NotStored, echoed
from proxy.telemetry.recent_requests import RecentRequests


def routes(recent: RecentRequests, *, bodies: BodyReader) -> APIRouter:
    router = typed_router(bodies, "/admin/v1/requests", tag="requests")

    @router.get("", responses=answers(RequestList, 400))
    async def list_requests(query: Annotated[RequestsQuery, Query()]) -> Response:
        """Requests that have ended, newest first, without their stages."""
        actor()
        found = recent.last(query.filter, query.limit)
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
            raise _unknown(request, recent.most)
        return JSONResponse(found)

    return router


def _unknown(request: str, kept: int) -> NotStored:
    message = (
        f"No request {echoed(request)} is among the last {kept} that this proxy keeps. GET "
        "/admin/v1/requests lists them; the log has earlier ones, other proxies have theirs."
    )
    return NotStored(message, code=ErrorCode.REQUEST_NOT_FOUND, param="request")
