"""One answer of the model in the tool loop: the events for the client, and the calls to run."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass, field, replace

from proxy.domain.errors import EngineFailed
from proxy.domain.events import (
    AnyDelta,
    Finished,
    OutputEvent,
    ReasoningDelta,
    TextDelta,
    ToolCallArguments,
    ToolCallStarted,
)
from proxy.domain.output import AnswerTimes, FinishReason, Usage
from proxy.domain.tools import ToolCall


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierRounds:
    """What earlier rounds took, and the tail of the text that the client has already received."""

    usage: Usage = field(default_factory=Usage)
    times: AnswerTimes = field(default_factory=AnswerTimes)
    text: str = ""
    reasoning: str = ""


class ToolRound:
    """Takes all events of one answer through `push`, then reports how the answer ended.

    Calls of the caller's tools pass to the client; calls of `server_tools` are collected. A blank
    line separates the texts of two rounds.
    """

    def __init__(self, server_tools: Collection[str], earlier: EarlierRounds) -> None:
        self._server_tools = server_tools
        self._earlier = earlier
        self._calls: dict[int, ToolCall] = {}
        self._fragments: dict[int, list[str]] = {}
        self._passed: dict[int, int] = {}
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._end: Finished | None = None

    def push(self, event: OutputEvent) -> AnyDelta | None:
        """The event as the client receives it; None if it receives nothing."""
        if isinstance(event, Finished):
            self._end = event
            return None
        if event.usage is not None:
            event = replace(event, usage=self._earlier.usage + event.usage)
        if isinstance(event, TextDelta):
            return _separated(event, self._text, self._earlier.text)
        if isinstance(event, ReasoningDelta):
            return _separated(event, self._reasoning, self._earlier.reasoning)
        if isinstance(event, ToolCallStarted):
            return self._start(event)
        if isinstance(event, ToolCallArguments):
            return self._add_arguments(event)
        return event

    @property
    def text(self) -> str:
        return "".join(self._text)

    @property
    def reasoning(self) -> str:
        return "".join(self._reasoning)

    @property
    def end(self) -> Finished:
        """The answer's last event. Raises EngineFailed: it has not been pushed."""
        if self._end is None:
            raise EngineFailed("The model's answer ended without a finish reason.")
        return self._end

    @property
    def calls(self) -> list[ToolCall]:
        """Calls of server tools; the token limit may have cut off the last one."""
        return [
            replace(call, arguments="".join(self._fragments[index]))
            for index, call in self._calls.items()
        ]

    def needs_results(self, *, is_named: bool) -> bool:
        """Whether the answer is nothing but complete calls of server tools.

        is_named: the caller named the one tool to call. Such an answer ends with `stop`, not with
        `tool_calls`; one that a stop string cut off does, too, so the JSON is checked.
        """
        if self._passed or not self._calls:
            return False
        wanted = FinishReason.STOP if is_named else FinishReason.TOOL_CALLS
        return self.end.reason is wanted and all(_is_json(call.arguments) for call in self.calls)

    def after(self) -> EarlierRounds:
        """The earlier rounds, from the next round's view."""
        return EarlierRounds(
            usage=self._earlier.usage + self.end.usage,
            times=self._earlier.times + self.end.times,
            text=self.text or self._earlier.text,
            reasoning=self.reasoning or self._earlier.reasoning,
        )

    def _start(self, event: ToolCallStarted) -> ToolCallStarted | None:
        if event.name in self._server_tools:
            self._calls[event.index] = ToolCall(id=event.id, name=event.name, arguments="")
            self._fragments[event.index] = []
            return None
        index = self._passed[event.index] = len(self._passed)
        return replace(event, index=index)

    def _add_arguments(self, event: ToolCallArguments) -> ToolCallArguments | None:
        if event.index in self._fragments:
            self._fragments[event.index].append(event.fragment)
            return None
        return replace(event, index=self._passed[event.index])


def _separated(
    event: TextDelta | ReasoningDelta, so_far: list[str], earlier: str
) -> TextDelta | ReasoningDelta:
    """The event, with a blank line before the first text after an earlier round's."""
    is_first = bool(event.text) and not so_far
    if event.text:
        so_far.append(event.text)
    if is_first and earlier and not earlier[-1].isspace():
        return replace(event, text=f"\n\n{event.text}")
    return event


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True
