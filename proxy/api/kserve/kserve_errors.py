"""Errors as KServe has them: `{"error": "what is wrong"}`. Of the routes below /v2."""

from __future__ import annotations

import orjson
from fastapi.routing import APIRoute
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from proxy.api import errors
from proxy.domain.errors import ProxyError


class KserveRoute(APIRoute):
    """Answers the errors that an endpoint raises. What the authentication refuses before it has
    the body of OpenAI's errors, as everywhere.
    """

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().handle(scope, receive, send)
        except ProxyError as error:
            await response_of(error)(scope, receive, send)


def response_of(error: ProxyError) -> Response:
    """The response with the status and headers that the same error has elsewhere."""
    usual = errors.response_of(error)
    message = orjson.loads(usual.body)["error"]["message"]
    headers = {
        name: value for name, value in usual.headers.items() if not name.startswith("content-")
    }
    return JSONResponse({"error": message}, usual.status_code, headers=headers)
