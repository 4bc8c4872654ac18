"""A request's bytes -> a checked pydantic model, and pydantic's errors -> ours."""

from __future__ import annotations

import codecs
from dataclasses import dataclass
from typing import Any, TypeVar

from fastapi import Request
from pydantic import BaseModel, ValidationError

from proxy.api import json_depth
from proxy.api.refused_fields import WHAT_TO_DO
from proxy.domain.errors import ECHO_AT_MOST, InvalidRequest, RequestError, echoed

LISTED_AT_MOST = 10
Body = TypeVar("Body", bound=BaseModel)


class FieldError(ValueError):
    """What a validator raises when the fault is one field's.

    A model's validator names it in `param` and in the message, a field's own has None.
    """

    def __init__(self, param: str | None, message: str, *, code: str = "invalid_parameter") -> None:
        super().__init__(message)
        self.param = param
        self.code = code


@dataclass(frozen=True, slots=True, kw_only=True)
class BodyLimits:
    """`depth`: of arrays and objects in each other."""

    bytes: int = 10_000_000
    depth: int = 100


async def read(request: Request, kind: type[Body], *, limits: BodyLimits) -> Body:
    """Raises RequestError: compressed, too large, too deep, not JSON, or not of this shape."""
    coding = request.headers.get("content-encoding", "identity")
    if coding.lower() not in ("", "identity"):
        raise RequestError(
            f"The body is compressed (Content-Encoding: {echoed(coding)}): send it as it is.",
            code="unsupported_encoding",
            param=None,
        )
    announced = request.headers.get("content-length", "0")  # the HTTP parser lets only digits pass
    if int(announced) > limits.bytes:
        raise _too_large(limits)
    data = bytearray()
    async for chunk in request.stream():
        data += chunk
        if len(data) > limits.bytes:
            break
    return parse(bytes(data), kind, limits=limits)


def parse(data: bytes, kind: type[Body], *, limits: BodyLimits) -> Body:
    """Raises as `read` does, of what is not compressed."""
    if len(data) > limits.bytes:
        raise _too_large(limits)
    data = data.removeprefix(codecs.BOM_UTF8)  # as RFC 8259, 8.1 allows
    if json_depth.exceeds(data, limits.depth):
        raise InvalidRequest(
            f"The body's arrays and objects are nested more than {limits.depth} deep.",
            code="invalid_json",
            param=None,
        )
    try:
        return kind.model_validate_json(data)
    except ValidationError as error:
        raise _refusal(error) from error


def _too_large(limits: BodyLimits) -> RequestError:
    return RequestError(
        f"The request body is larger than {limits.bytes} bytes.",
        code="request_too_large",
        param=None,
    )


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
    return InvalidRequest("; ".join(told), code=_code(first, path), param=path or None)


def _param(problem: Any) -> str:
    raised = problem.get("ctx", {}).get("error")
    named = raised.param if isinstance(raised, FieldError) else None
    return named or _path(problem["loc"])


def _told(problem: Any) -> str:
    path = _path(problem["loc"])
    raised = problem.get("ctx", {}).get("error")
    if isinstance(raised, FieldError) and raised.param is not None:
        return str(raised)
    match problem["type"]:
        case "missing":
            return f"Missing required parameter: '{path}'"
        case "extra_forbidden":
            told = f"Unsupported parameter: '{path}' is not supported by this server"
            return f"{told}: {WHAT_TO_DO[path]}" if path in WHAT_TO_DO else told
        case _:
            reason = problem["msg"].removeprefix("Value error, ")
            value = echoed(problem["input"])
            return f"Invalid value for '{path or 'body'}': {reason} (given: {value})"


def _code(problem: Any, path: str) -> str:
    kind, raised = problem["type"], problem.get("ctx", {}).get("error")
    if isinstance(raised, FieldError):
        return raised.code
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
        elif not part.startswith("<") and part != "[key]":
            path += f".{part}" if path else part
    return path[:ECHO_AT_MOST]
