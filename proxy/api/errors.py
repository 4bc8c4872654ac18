"""Errors -> HTTP. One body, always: `{"error": {"message", "type", "param", "code"}}`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import structlog
from fastapi import FastAPI, Request
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from triton_openai.proxy.domain.errors import ProxyError, RateLimited, RequestError, in_short
from triton_openai.proxy.telemetry import line

logger = structlog.get_logger(__name__)

STATUS_BY_CODE = {
    "model_not_found": 404,
    "request_too_large": 413,
    "request_timeout": 408,
    "unknown_host": 421,
    "unsupported_encoding": 415,
    "unsupported_content_type": 415,
    "invalid_schema": 422,
    "schema_violation": 422,
    "guide_too_slow": 422,
    "rate_limit_exceeded": 429,
    "queue_full": 429,
    "model_unavailable": 503,
    "deadline_exceeded": 504,
    "engine_stalled": 504,
}
RETRY_AFTER_S = 1.0
CLOSES = {"Connection": "close"}  # instead of reading the rest of a body that is too large
INTERNAL = "The server had an error while processing the request."
LONGEST_DETAIL = 10_000  # characters
# For a base URL without its /v1 or with two, and for SDKs that ask for /v1/responses by default.
WHERE_IT_IS = "OpenAI's API is at /v1/chat/completions, /v1/completions and /v1/models."


def body_of(error: Exception) -> dict[str, Any]:
    """The JSON body. Foreign errors and details go to the log; the caller gets the request id."""
    if not isinstance(error, ProxyError):
        logger.error("internal error", exc_info=error)
        return _body(_with_id(INTERNAL), "server_error", None, ProxyError.code)
    if error.detail is None:
        return _body(error.message, _kind(error), error.param, error.code)
    logger.error("request failed", code=error.code, detail=error.detail[:LONGEST_DETAIL])
    return _body(_with_id(error.message), _kind(error), error.param, error.code)


def response_of(error: Exception) -> Response:
    """The whole response, with the headers that OpenAI's SDKs obey when they retry."""
    body = body_of(error)
    default = 400 if isinstance(error, RequestError) else 500
    status = STATUS_BY_CODE.get(body["error"]["code"], default)
    retry_after_s = error.retry_after_s if isinstance(error, RateLimited) else RETRY_AFTER_S
    headers = CLOSES if status == 413 else _retry_headers(status, retry_after_s)
    return JSONResponse(body, status, headers=headers)


def install(app: FastAPI) -> None:
    """The handlers; what is no ProxyError goes on to the outermost middleware."""
    app.add_exception_handler(ProxyError, _on_error)
    app.add_exception_handler(HTTPException, _on_http_exception)


def _kind(error: ProxyError) -> str:
    match error:
        case RateLimited():
            return "rate_limit_error"
        case RequestError():
            return "invalid_request_error"
    return "server_error"


def _with_id(message: str) -> str:
    request_id = structlog.contextvars.get_contextvars().get("request_id")
    return message if request_id is None else f"{message} (request id: {request_id})"


async def _on_error(_: Request, error: Exception) -> Response:
    return response_of(error)


async def _on_http_exception(request: Request, error: Exception) -> Response:
    """Starlette's own: no such route, no such method."""
    assert isinstance(error, HTTPException)
    status, where = error.status_code, in_short(f"{request.method} {request.url.path}")
    code = {404: "unknown_url", 405: "method_not_allowed"}.get(status)
    message = {
        404: f"Invalid URL ({where}). {WHERE_IT_IS}",
        405: f"Method not allowed ({where}).",
    }.get(status, f"{HTTPStatus(status).phrase} ({where}): {error.detail}")
    body = _body(message, "invalid_request_error", None, code)
    return JSONResponse(body, status, headers=_with_head(error.headers))


def _with_head(headers: Mapping[str, str] | None) -> dict[str, str]:
    """Where there is GET, there is HEAD, which FastAPI does not know of: see HeadAsGet."""
    headers = dict(headers or {})
    allowed = headers.get("Allow", "").split(", ")
    if "GET" in allowed and "HEAD" not in allowed:
        headers["Allow"] = ", ".join((*allowed, "HEAD"))
    return headers


def _body(message: str, kind: str, param: str | None, code: str | None) -> dict[str, Any]:
    line.add(error=code or kind)
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def _retry_headers(status: int, retry_after_s: float) -> dict[str, str] | None:
    if status in (429, 503):
        return {
            "Retry-After": str(math.ceil(retry_after_s)),
            "retry-after-ms": str(math.ceil(retry_after_s * 1000)),
            "x-should-retry": "true",
        }
    return {"x-should-retry": "false"} if status == 504 else None
