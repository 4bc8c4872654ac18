"""/admin/v1/requests: the requests that ended last, in all processes of this proxy."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query
from starlette.responses import JSONResponse, Response

from triton_openai.proxy.api.bodies.body_reader import BodyReader
from triton_openai.proxy.api.openapi.responses import answers
from triton_openai.proxy.api.pools.operator import actor
from triton_openai.proxy.api.recent.requests_answers import RequestAnswer, RequestList
from triton_openai.proxy.api.recent.requests_query import RequestsQuery
from triton_openai.proxy.api.typed_route import typed_router
from triton_openai.proxy.domain.errors import ErrorCode, NotStored, echoed
from triton_openai.proxy.request_search import RequestSearch


def routes(search: RequestSearch, *, bodies: BodyReader) -> APIRouter:
    router = typed_router(bodies, "/admin/v1/requests", tag="requests")

    @router.get("", responses=answers(RequestList, 400))
    async def list_requests(query: Annotated[RequestsQuery, Query()]) -> Response:
        """Requests that have ended, newest first, without their stages."""
        actor()
        found = await search.last(query.filter, query.limit)
        return JSONResponse(
            {
                "object": "list",
                "data": found.requests,
                "kept_at_most": search.kept_at_most,
                "silent_processes": found.silent,
            }
        )

    @router.get("/{request}", responses=answers(RequestAnswer))
    async def show_request(
        request: Annotated[
            str, Path(min_length=1, description="The answer's `x-request-id`, or its `id`.")
        ],
    ) -> Response:
        """One request that has ended, with its stages."""
        actor()
        found = await search.find(request)
        if not found.requests:
            raise _unknown(request, search.kept_at_most, found.silent)
        return JSONResponse(found.requests[0])

    return router


def _unknown(request: str, kept: int, silent: int) -> NotStored:
    if kept:
        message = (
            f"No request {echoed(request)} is among the last {kept} that each process of this "
            "proxy keeps. GET /admin/v1/requests lists them; the log has earlier ones."
        )
    else:
        message = "This proxy keeps no requests: RECENT_REQUESTS is 0."
    if silent:
        message += f" Processes that did not answer: {silent}."
    return NotStored(message, code=ErrorCode.REQUEST_NOT_FOUND, param="request")
