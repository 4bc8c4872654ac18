"""What tool-call and reasoning parsers make of text, beside TextDelta."""

from __future__ import annotations

from dataclasses import dataclass

from proxy.domain.output import TextDelta


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """More of what the model thinks before it answers."""

    text: str
    choice: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallStarted:
    """The model calls the tool `name`; `index` counts the calls of a choice from 0."""

    index: int
    id: str
    name: str
    choice: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallArguments:
    """More of a call's arguments; a finished call's fragments add up to one JSON object."""

    index: int
    fragment: str
    choice: int = 0


ToolEvent = TextDelta | ToolCallStarted | ToolCallArguments
ReasoningEvent = TextDelta | ReasoningDelta
