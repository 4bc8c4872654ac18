"""The fields of a body that ask for a priority: `priority`, a hint in `nvext`, and in `metadata`.

`metadata` is the caller's own notes, so only an integer there is a priority. "high" is a note.
"""

from __future__ import annotations

import re
from typing import TypeVar

from proxy.api.openai.requests.field_types import INT32_MAX
from proxy.api.openai.requests.generation_body import GenerationBody
from proxy.domain.errors import ErrorCode, InvalidRequest, echoed

IN_METADATA = "metadata.priority"
IN_NVEXT = "nvext.agent_hints.priority"
INTEGER = re.compile(r"[+-]?[0-9]+")

Body = TypeVar("Body", bound=GenerationBody)


def merged(body: Body) -> Body:
    """The body with the priority of `metadata` in its own field; lower numbers go first in both.

    Args:
        body: a body into which nvext is merged.

    Raises:
        InvalidRequest: the number is too large, or another field gives another priority.
    """
    if (text := _in_metadata(body)) is None:
        return body
    priority = int(text)
    if abs(priority) > INT32_MAX:
        raise _refusal(
            f"Invalid value for '{IN_METADATA}': {echoed(text)} is not from {-INT32_MAX} to "
            f"{INT32_MAX}; a note that is no number is not read"
        )
    if body.priority not in (None, priority):
        raise _refusal(
            f"'priority' is {body.priority}, but '{IN_METADATA}' is {priority}: give one of them"
        )
    return body.model_copy(update={"priority": priority})


def field_name(body: GenerationBody) -> str:
    """The path of a field that asks for the priority of a merged body. Used in errors."""
    if _in_metadata(body) is not None:
        return IN_METADATA
    hints = None if body.nvext is None else body.nvext.agent_hints
    return "priority" if hints is None or hints.priority is None else IN_NVEXT


def _in_metadata(body: GenerationBody) -> str | None:
    text = (body.metadata or {}).get("priority")
    return text if text is not None and INTEGER.fullmatch(text) else None


def _refusal(message: str) -> InvalidRequest:
    return InvalidRequest(message, code=ErrorCode.INVALID_PARAMETER, param=IN_METADATA)
