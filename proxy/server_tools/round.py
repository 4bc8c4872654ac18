"""One answer of the model within a request: what the client gets of it, and the calls to run."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass, field, replace

from triton_openai.proxy.domain.errors import EngineFailed
from triton_openai.proxy.domain.events import (
    AnyDelta,
    Finished,
    OutputEvent,
    ReasoningDelta,
    TextDelta,
    ToolCallArguments,
    ToolCallStarted,
)
from triton_openai.proxy.domain.output import FinishReason, Usage
from triton_openai.proxy.domain.tools import ToolCall


@dataclass(frozen=True, slots=True, kw_only=True)
class Before:
    """What the rounds before cost, and how what the client has of them ends."""

    usage: Usage = field(default_factory=Usage)
    text: str = ""
    reasoning: str = ""


class Round:
    """`push` its events, all of them; then see how it ended.

    Calls of the caller's tools pass; those of `ours` are kept. A blank line stands between what
    two rounds say.
    """

    def __init__(self, ours: Collection[str], before: Before) -> None:
        self._ours = ours
        self._before = before
        self._calls: dict[int, ToolCall] = {}
        self._fragments: dict[int, list[str]] = {}
        self._passed: dict[int, int] = {}
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._end: Finished | None = None

    def push(self, event: OutputEvent) -> AnyDelta | None:
        """What the client gets of it."""
        if isinstance(event, Finished):
            self._end = event
            return None
        if event.usage is not None:
            event = replace(event, usage=self._before.usage + event.usage)
        if isinstance(event, TextDelta):
            return _said(event, self._text, self._before.text)
        if isinstance(event, ReasoningDelta):
            return _said(event, self._reasoning, self._before.reasoning)
        if isinstance(event, ToolCallStarted):
            return self._start(event)
        if isinstance(event, ToolCallArguments):
            return self._argue(event)
        return event

    @property
    def text(self) -> str:
        return "".join(self._text)

    @property
    def reasoning(self) -> str:
        return "".join(self._reasoning)

    @property
    def end(self) -> Finished:
        """The last of its events; not there before they have all been pushed."""
        if self._end is None:
            raise EngineFailed("The model's answer ended without a finish reason.")
        return self._end

    @property
    def calls(self) -> list[ToolCall]:
        """Of our tools; the last may have been cut off."""
        return [
            replace(call, arguments="".join(self._fragments[index]))
            for index, call in self._calls.items()
        ]

    def is_to_be_answered(self, *, is_named: bool) -> bool:
        """Whether it calls only our tools, in whole calls. Where the caller named the tool to call,
        an answer of calls ends with `stop`, and so does one that a stop string cut off.
        """
        if self._passed or not self._calls:
            return False
        wanted = FinishReason.STOP if is_named else FinishReason.TOOL_CALLS
        return self.end.reason is wanted and all(_is_json(call.arguments) for call in self.calls)

    def after(self) -> Before:
        """For the round behind this one."""
        return Before(
            usage=self._before.usage + self.end.usage,
            text=self.text or self._before.text,
            reasoning=self.reasoning or self._before.reasoning,
        )

    def _start(self, event: ToolCallStarted) -> ToolCallStarted | None:
        if event.name in self._ours:
            self._calls[event.index] = ToolCall(id=event.id, name=event.name, arguments="")
            self._fragments[event.index] = []
            return None
        index = self._passed[event.index] = len(self._passed)
        return replace(event, index=index)

    def _argue(self, event: ToolCallArguments) -> ToolCallArguments | None:
        if event.index in self._fragments:
            self._fragments[event.index].append(event.fragment)
            return None
        return replace(event, index=self._passed[event.index])


def _said(
    event: TextDelta | ReasoningDelta, so_far: list[str], before: str
) -> TextDelta | ReasoningDelta:
    """As the client gets it, apart from what was said before."""
    is_first = bool(event.text) and not so_far
    if event.text:
        so_far.append(event.text)
    if is_first and before and not before[-1].isspace():
        return replace(event, text=f"\n\n{event.text}")
    return event


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True
