"""/admin/v1/requests: the requests that ended last."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response

from triton_openai.proxy.api.bodies import query_parameters
from triton_openai.proxy.api.pools.operator import actor
from triton_openai.proxy.api.recent import requests_operations
from triton_openai.proxy.api.recent.requests_query import RequestsQuery
from triton_openai.proxy.domain.errors import ErrorCode, NotStored, echoed
from triton_openai.proxy.telemetry.recent_requests import RecentRequests


def routes(recent: RecentRequests) -> APIRouter:
    router = APIRouter(prefix="/admin/v1/requests")

    @router.get("", openapi_extra=requests_operations.LIST_REQUESTS.extra)
    async def list_requests(http: Request) -> Response:
        """Requests that have ended, newest first, without their stages."""
        actor()
        query = query_parameters.read(http, RequestsQuery)
        found = recent.last(query.filter, query.limit)
        return JSONResponse({"object": "list", "data": found, "kept_at_most": recent.most})

    @router.get("/{request}", openapi_extra=requests_operations.SHOW_REQUEST.extra)
    async def show_request(request: str) -> Response:
        """One request that has ended, with its stages."""
        actor()
        if (found := recent.find(request)) is None:
            raise _unknown(request, recent.most)
        return JSONResponse(found)

    return router


def _unknown(request: str, kept: int) -> NotStored:
    if kept:
        message = (
            f"No request {echoed(request)} is among the last {kept} that this proxy keeps. GET "
            "/admin/v1/requests lists them; the log has earlier ones, other proxies have theirs."
        )
    else:
        message = "This proxy keeps no requests: RECENT_REQUESTS is 0."
    return NotStored(message, code=ErrorCode.REQUEST_NOT_FOUND, param="request")
