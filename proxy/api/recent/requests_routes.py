"""/admin/v1/requests: the requests that ended last, in all processes of this proxy."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response

from triton_openai.proxy.api.bodies import query_parameters
from triton_openai.proxy.api.pools.operator import actor
from triton_openai.proxy.api.recent import requests_operations
from triton_openai.proxy.api.recent.requests_query import RequestsQuery
from triton_openai.proxy.domain.errors import ErrorCode, NotStored, echoed
from triton_openai.proxy.request_search import RequestSearch


def routes(search: RequestSearch) -> APIRouter:
    router = APIRouter(prefix="/admin/v1/requests")

    @router.get("", openapi_extra=requests_operations.LIST_REQUESTS.extra)
    async def list_requests(http: Request) -> Response:
        """Requests that have ended, newest first, without their stages."""
        actor()
        query = query_parameters.read(http, RequestsQuery)
        found = await search.last(query.filter, query.limit)
        return JSONResponse(
            {
                "object": "list",
                "data": found.requests,
                "kept_at_most": search.kept_at_most,
                "silent_processes": found.silent,
            }
        )

    @router.get("/{request}", openapi_extra=requests_operations.SHOW_REQUEST.extra)
    async def show_request(request: str) -> Response:
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
