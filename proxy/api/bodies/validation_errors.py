"""Turns pydantic's validation errors into an InvalidRequest. Called by `body_reader`."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from triton_openai.proxy.api.bodies.unsupported_fields import ADVICE
from triton_openai.proxy.domain.errors import ECHO_AT_MOST, ErrorCode, InvalidRequest, echoed

LISTED_AT_MOST = 10


class FieldError(ValueError):
    """The error that our validators raise.

    param: path of the field that is wrong, which the message names as well. None in a validator of
    that field itself: the path is then pydantic's.
    """

    def __init__(
        self,
        param: str | None,
        message: str,
        *,
        code: ErrorCode = ErrorCode.INVALID_PARAMETER,
    ) -> None:
        super().__init__(message)
        self.param = param
        self.code = code


def refusal(error: ValidationError) -> InvalidRequest:
    """The first problem gives code and param; the message lists at most ten."""
    problems = error.errors(include_url=False)
    first = problems[0]
    if first["type"] == "json_invalid":
        reason = first["ctx"]["error"]
        return InvalidRequest(
            f"The body is not valid JSON: {reason}", code=ErrorCode.INVALID_JSON, param=None
        )
    listed = [_described(problem) for problem in problems[:LISTED_AT_MOST]]
    if len(problems) > LISTED_AT_MOST:
        listed.append(f"and {len(problems) - LISTED_AT_MOST} more")
    path = _param(first)
    return InvalidRequest("; ".join(listed), code=_code(first, path), param=path or None)


def _param(problem: Any) -> str:
    raised = problem.get("ctx", {}).get("error")
    named = raised.param if isinstance(raised, FieldError) else None
    return named or _path(problem["loc"])


def _described(problem: Any) -> str:
    path = _path(problem["loc"])
    raised = problem.get("ctx", {}).get("error")
    if isinstance(raised, FieldError) and raised.param is not None:
        return str(raised)
    match problem["type"]:
        case "missing":
            return f"Missing required parameter: '{path}'"
        case "extra_forbidden":
            refused = f"Unsupported parameter: '{path}' is not supported by this server"
            return f"{refused}: {ADVICE[path]}" if path in ADVICE else refused
        case _:
            reason = problem["msg"].removeprefix("Value error, ")
            value = echoed(problem["input"])
            return f"Invalid value for '{path or 'body'}': {reason} (given: {value})"


def _code(problem: Any, path: str) -> ErrorCode:
    kind, raised = problem["type"], problem.get("ctx", {}).get("error")
    if isinstance(raised, FieldError):
        return raised.code
    if kind == "extra_forbidden":
        return ErrorCode.UNSUPPORTED_PARAMETER
    if path.startswith("messages"):
        is_missing = (kind, path) == ("missing", "messages")
        return ErrorCode.MISSING_PARAMETER if is_missing else ErrorCode.INVALID_MESSAGES
    return ErrorCode.MISSING_PARAMETER if kind == "missing" else ErrorCode.INVALID_PARAMETER


def _path(location: tuple[int | str, ...]) -> str:
    """("messages", 2, "<parts>", "content") -> messages[2].content; `<…>` are union tags."""
    path = ""
    for part in location:
        if isinstance(part, int):
            path += f"[{part}]"
        elif not part.startswith("<") and part != "[key]":
            path += f".{part}" if path else part
    return path[:ECHO_AT_MOST]
