"""Checks that each tool call in a chat's history has its result and each result its call.

OpenAI's API does the same. Called by the bodies that have messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import AfterValidator, Field

from proxy.api.bodies.validation_errors import FieldError
from proxy.api.openai.requests.field_types import ListOf
from proxy.api.openai.requests.message_bodies import (
    AssistantBody,
    MessageBody,
    ToolCallBody,
    ToolResultBody,
)
from proxy.domain.errors import ErrorCode, echoed, in_short


def check_tool_history(messages: Sequence[MessageBody], *, may_end_open: bool = False) -> None:
    """Checks a history. Ids must be unique within a message; later messages may use them again.

    may_end_open: the last calls need no results, because no answer is generated.

    Raises:
        FieldError: a result has no call, a call has no result or two, or calls share an id.
    """
    open_calls: _OpenCalls | None = None
    for at, message in enumerate(messages):
        if isinstance(message, ToolResultBody):
            if open_calls is None:
                raise _wrong(
                    f"messages[{at}].role",
                    "Invalid parameter: messages with role 'tool' must be a response to a "
                    "preceding message with 'tool_calls'.",
                )
            open_calls.take(at, message.tool_call_id)
            continue
        if open_calls is not None:
            open_calls.close()
        calls = message.tool_calls if isinstance(message, AssistantBody) else None
        open_calls = _OpenCalls(at, calls) if calls else None
    if open_calls is not None and not may_end_open:
        open_calls.close()


class _OpenCalls:
    """The calls of one message, until all have results."""

    def __init__(self, at: int, calls: Sequence[ToolCallBody]) -> None:
        """Raises FieldError: two calls have the same id."""
        self._at = at
        self._ids: dict[str, int] = {}  # -> position of the call
        self._answers: dict[str, int] = {}  # -> position of its result's message
        for number, call in enumerate(calls):
            path = f"messages[{at}].tool_calls[{number}].id"
            if call.id in self._ids:
                raise _wrong(
                    path, f"Invalid parameter: Duplicate value for {path!r}: {echoed(call.id)}."
                )
            self._ids[call.id] = number

    def take(self, at: int, call_id: str) -> None:
        """Adds a result. Raises FieldError: no call has this id, or it already has a result."""
        path = f"messages[{at}].tool_call_id"
        if call_id not in self._ids:
            raise _wrong(
                path,
                f"Invalid parameter: 'tool_call_id' of {echoed(call_id)} not found in "
                f"'tool_calls' of previous message (messages[{self._at}]).",
            )
        if call_id in self._answers:
            raise _wrong(
                path,
                f"Invalid parameter: Duplicate value for 'tool_call_id' of {echoed(call_id)}, "
                f"in messages[{self._answers[call_id]}] and messages[{at}].",
            )
        self._answers[call_id] = at

    def close(self) -> None:
        """Ends the results. Raises FieldError: a call has none."""
        missing = [one for one in self._ids if one not in self._answers]
        if missing:
            raise _wrong(
                f"messages[{self._at}].tool_calls[{self._ids[missing[0]]}].id",
                "An assistant message with 'tool_calls' must be followed by tool messages "
                "responding to each 'tool_call_id'. The following tool_call_ids did not have "
                f"response messages: {in_short(', '.join(missing))}",
            )


def _wrong(path: str, message: str) -> FieldError:
    return FieldError(path, message, code=ErrorCode.INVALID_MESSAGES)


def _checked(messages: list[MessageBody]) -> list[MessageBody]:
    check_tool_history(messages)
    return messages


Messages = Annotated[ListOf[MessageBody], Field(min_length=1), AfterValidator(_checked)]
