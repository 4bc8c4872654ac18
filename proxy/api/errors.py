"""Errors -> HTTP. One body: `{"error": {"message", "type", "param", "code"}}`; a protocol
may have its own form.

Called where errors are caught: once for HTTP responses (`http.application`), once for streams that
have started (`http.answer`), once for WebSocket messages (`openai.chat_socket`).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from difflib import get_close_matches
from http import HTTPStatus
from typing import Any

import structlog
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from proxy.api.http.route_scopes import paths
from proxy.api.protocols import errors_at
from proxy.domain.errors import (
    ErrorCode,
    ErrorType,
    ProxyError,
    RateLimited,
    RequestError,
    in_short,
)
from proxy.domain.record import running_record

logger = structlog.get_logger(__name__)

RETRY_AFTER_S = 1.0
LONGEST_RETRY_S = 120.0  # OpenAI's SDKs do not wait longer
CLOSES = {"Connection": "close"}  # so that the rest of a body that is refused need not be read
INTERNAL = "The server had an error while processing the request."
LONGEST_DETAIL = 10_000  # characters
WHERE_IT_IS = (
    "OpenAI's API is at /v1/chat/completions, /v1/responses, /v1/completions, /v1/embeddings and "
    "/v1/models."
)
CHAT, RESPONSES = "/v1/chat/completions", "/v1/responses"
SOCKET = f"{CHAT}/ws"
# First words of paths of other APIs, behind /v1 -> what they are, and the nearest route.
FEATURES: Mapping[str, tuple[str, str | None]] = {
    "conversations": ("the Conversations API", RESPONSES),
    "assistants": ("the Assistants API", CHAT),
    "threads": ("the Assistants API", CHAT),
    "realtime": ("the Realtime API", SOCKET),
    "messages": ("this part of Anthropic's API", "/v1/messages"),
    "openai": ("Azure's API", CHAT),
    "api": ("Ollama's API", CHAT),
    "generate": ("the API of Text Generation Inference", "/v1/completions"),
    "infill": ("llama.cpp's infill API", "/v1/completions"),
    "edits": ("edits", "/v1/completions"),
    "batches": ("batches", CHAT),
    "rerank": ("reranking", None),
    "moderations": ("moderation", None),
    "audio": ("speech or transcription", None),
    "images": ("images", None),
    "videos": ("videos", None),
    "files": ("files", None),
    "uploads": ("files", None),
    "vector_stores": ("vector stores", None),
    "fine_tuning": ("fine-tuning", None),
}
LONGEST_PATH = 100  # characters; a longer one is not compared
ALIKE = 0.85


def body_of(error: Exception) -> dict[str, Any]:
    """The JSON body. Unexpected errors and details are logged; the caller gets the request id."""
    if not isinstance(error, ProxyError):
        logger.error(
            "internal error",
            exc_info=error,
            advice="this is a bug of the proxy: report it with this line",
        )
        return _body(_with_id(INTERNAL), None, ErrorCode.INTERNAL_ERROR)
    message, param = _named(error)
    if error.detail is None:
        return _body(message, param, error.code)
    logger.error(
        "request failed",
        code=error.code.value,
        detail=error.detail[:LONGEST_DETAIL],
        advice="`detail` is what another program reported: look at its state and its log",
    )
    return _body(_with_id(message), param, error.code)


def _named(error: ProxyError) -> tuple[str, str | None]:
    """Message and param, with the caller's name for the field, or for what contains it."""
    if (own := error.param) is None:
        return error.message, None
    names = running_record().field_names()
    ends = [len(own), *(at for at in range(len(own) - 1, 0, -1) if own[at] in ".[")]
    name = next((names[own[:end]] + own[end:] for end in ends if own[:end] in names), own)
    return error.message.replace(f"'{own}'", f"'{name}'"), name


def response_of(error: Exception, path: str) -> Response:
    """The whole response, with the headers that OpenAI's SDKs obey when they retry.

    path: of the request.
    """
    return _response(body_of(error), code_of(error).status, path, headers_of(error))


def _response(
    body: dict[str, Any], status: int, path: str, headers: Mapping[str, str]
) -> JSONResponse:
    form = errors_at(path)
    return JSONResponse(body if form is None else form.body(body), status, headers=headers)


def code_of(error: Exception) -> ErrorCode:
    return error.code if isinstance(error, ProxyError) else ErrorCode.INTERNAL_ERROR


def headers_of(error: Exception) -> dict[str, str]:
    code = code_of(error)
    match code.status:
        case 413:
            return {**CLOSES}
        case 401:
            wrong = (
                "" if code is ErrorCode.MISSING_API_KEY else ', error="invalid_token"'
            )  # RFC 6750
            return {"WWW-Authenticate": f'Bearer realm="triton-openai"{wrong}', **CLOSES}
        case 429 | 503:
            retry_after_s, headers = RETRY_AFTER_S, {}
            if isinstance(error, RateLimited):
                retry_after_s = error.retry_after_s
                if error.limit is not None:
                    headers["x-ratelimit-exceeded"] = error.limit
            if math.isinf(retry_after_s):
                return {"x-should-retry": "false", **headers}
            return {
                "Retry-After": str(math.ceil(retry_after_s)),
                "retry-after-ms": str(math.ceil(retry_after_s * 1000)),
                "x-should-retry": "true" if retry_after_s <= LONGEST_RETRY_S else "false",
                **headers,
            }
    # OpenAI's SDKs send a 409 again by themselves
    is_final = code.status == 504 or code is ErrorCode.IDEMPOTENCY_CONFLICT
    return {"x-should-retry": "false"} if is_final else {}


async def routing_error(request: Request, error: Exception) -> Response:
    """The response to a request that no route takes: an unknown path, or a wrong method."""
    assert isinstance(error, HTTPException)
    status, path = error.status_code, request.url.path
    headers = _with_head(error.headers)
    if status == 404:
        unknown = unknown_url(request.method, path, [*paths(request.app.routes)])
        return _response(body_of(unknown), status, path, headers)
    where = in_short(f"{request.method} {path}")
    if status == 405:
        body = _body(f"Method not allowed ({where}).", None, ErrorCode.METHOD_NOT_ALLOWED)
    else:
        body = _body(f"{HTTPStatus(status).phrase} ({where}): {error.detail}", None, None)
    return _response(body, status, path, headers)


def unknown_url(method: str, path: str, known: Collection[str]) -> RequestError:
    """known: the paths that there are."""
    message = f"Invalid URL ({in_short(f'{method} {path}')}). {_nearest(path, known)}"
    return RequestError(message, code=ErrorCode.UNKNOWN_URL)


def _nearest(path: str, known: Collection[str]) -> str:
    """For base URLs that lack /v1 or have it twice, other APIs, and misspelt paths."""
    if len(path) > LONGEST_PATH:
        return WHERE_IT_IS
    words = [word for word in path.lower().split("/") if word]
    while words[:1] == ["v1"]:
        words.pop(0)
    fixed, bare = [one for one in known if "{" not in one], "/".join(words)
    if found := [one for one in (f"/v1/{bare}", f"/{bare}") if one in fixed]:
        return f"Did you mean {found[0]}?"
    if words and (features := get_close_matches(words[0], FEATURES, n=1, cutoff=ALIKE)):
        feature, route = FEATURES[features[0]]
        nearest = WHERE_IT_IS if route is None else f"The nearest route is {route}."
        return f"This server does not have {feature}. {nearest}"
    for one in (f"/v1/{bare}", f"/{bare}"):
        if found := get_close_matches(one, fixed, n=1, cutoff=ALIKE):
            return f"Did you mean {found[0]}?"
    return WHERE_IT_IS


def _with_id(message: str) -> str:
    request_id = running_record().request_id
    return f"{message} (request id: {request_id})" if request_id else message


def _with_head(headers: Mapping[str, str] | None) -> dict[str, str]:
    """Adds HEAD to `Allow` if it has GET: FastAPI does not know of HEAD, see Application."""
    headers = dict(headers or {})
    allowed = headers.get("Allow", "").split(", ")
    if "GET" in allowed and "HEAD" not in allowed:
        headers["Allow"] = ", ".join((*allowed, "HEAD"))
    return headers


def _body(message: str, param: str | None, code: ErrorCode | None) -> dict[str, Any]:
    kind = ErrorType.INVALID_REQUEST if code is None else code.type
    running_record().error = kind.value if code is None else code.value
    error = {
        "message": message,
        "type": kind.value,
        "param": param,
        "code": None if code is None else code.value,
    }
    return {"error": error}
