"""pydantic's errors -> the caller's. Called by `body`."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from triton_openai.proxy.api.bodies.refused_fields import WHAT_TO_DO
from triton_openai.proxy.domain.errors import ECHO_AT_MOST, InvalidRequest, echoed

LISTED_AT_MOST = 10


class FieldError(ValueError):
    """What a validator raises when the fault is one field's.

    A model's validator names it in `param` and in the message, a field's own has None.
    """

    def __init__(self, param: str | None, message: str, *, code: str = "invalid_parameter") -> None:
        super().__init__(message)
        self.param = param
        self.code = code


def refusal(error: ValidationError) -> InvalidRequest:
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
