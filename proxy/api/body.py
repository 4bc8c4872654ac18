"""A request's bytes -> a checked pydantic model, and pydantic's errors -> ours."""

from __future__ import annotations

from typing import Any, TypeVar

from fastapi import Request
from pydantic import BaseModel, ValidationError

from proxy.domain.errors import InvalidRequest, RequestError, echoed

LISTED_AT_MOST = 10
Body = TypeVar("Body", bound=BaseModel)


class FieldError(ValueError):
    """What a model validator raises when the fault is one field's."""

    def __init__(self, param: str, message: str) -> None:
        super().__init__(message)
        self.param = param


async def read(request: Request, kind: type[Body], *, max_bytes: int) -> Body:
    """Raises RequestError: too large, not JSON, or not of this shape."""
    data = bytearray()
    async for chunk in request.stream():
        data += chunk
        if len(data) > max_bytes:
            break
    return parse(bytes(data), kind, max_bytes=max_bytes)


def parse(data: bytes, kind: type[Body], *, max_bytes: int) -> Body:
    """Raises as `read` does."""
    if len(data) > max_bytes:
        raise RequestError(
            f"The request body is larger than {max_bytes} bytes.",
            code="request_too_large",
            param=None,
        )
    try:
        return kind.model_validate_json(data)
    except ValidationError as error:
        raise _refusal(error) from error


def documented(kind: type[BaseModel]) -> dict[str, Any]:
    """The body in the OpenAPI document; FastAPI does not see it, since `read` parses it."""
    schema = kind.model_json_schema()
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def _refusal(error: ValidationError) -> InvalidRequest:
    """The first problem gives code and param; at most ten are told."""
    problems = error.errors(include_url=False)
    first = problems[0]
    if first["type"] == "json_invalid":
        reason = first["ctx"]["error"]
        return InvalidRequest(
            f"The body is not valid JSON: {reason}", code="invalid_json", param=None
        )
    told = [_told(problem) for problem in problems[:LISTED_AT_MOST]]
    if len(problems) > LISTED_AT_MOST:
        told.append(f"and {len(problems) - LISTED_AT_MOST} more")
    path = _param(first)
    return InvalidRequest("; ".join(told), code=_code(first["type"], path), param=path or None)


def _param(problem: Any) -> str:
    raised = problem.get("ctx", {}).get("error")
    return raised.param if isinstance(raised, FieldError) else _path(problem["loc"])


def _told(problem: Any) -> str:
    path = _path(problem["loc"])
    match problem["type"]:
        case "missing":
            return f"Missing required parameter: '{path}'"
        case "extra_forbidden":
            return f"Unsupported parameter: '{path}' is not supported by this server"
        case "value_error":
            return str(problem["ctx"]["error"])
        case _:
            value = echoed(problem["input"])
            return f"Invalid value for '{path or 'body'}': {problem['msg']} (given: {value})"


def _code(kind: str, path: str) -> str:
    if kind == "extra_forbidden":
        return "unsupported_parameter"
    if path.startswith("messages"):
        return (
            "missing_parameter" if (kind, path) == ("missing", "messages") else "invalid_messages"
        )
    return "missing_parameter" if kind == "missing" else "invalid_parameter"


def _path(location: tuple[int | str, ...]) -> str:
    """("messages", 2, "<parts>", "content") -> messages[2].content; `<…>` are union tags."""
    path = ""
    for part in location:
        if isinstance(part, int):
            path += f"[{part}]"
        elif not part.startswith("<"):
            path += f".{part}" if path else part
    return path
