"""Text of an answer -> reasoning, text and tool calls: the parsers in their order."""

from __future__ import annotations

from triton_openai.proxy.domain.events import (
    AnyDelta,
    ReasoningDelta,
    ReasoningEvent,
    TextDelta,
    ToolCallArguments,
    ToolCallStarted,
    ToolEvent,
)
from triton_openai.proxy.domain.output import FinishReason
from triton_openai.proxy.syntax.reasoning.parser import ReasoningParser
from triton_openai.proxy.syntax.tools.parser import ToolParser


class OutputParser:
    """Reasoning is taken out first; calls are looked for in the rest.

    most_calls: what comes after so many is dropped, and `has_all` says that no more is wanted.
    """

    def __init__(
        self,
        reasoning: ReasoningParser | None,
        tools: ToolParser | None,
        *,
        most_calls: int | None = None,
    ) -> None:
        self._reasoning = reasoning
        self._tools = tools
        self._most_calls = most_calls
        self._is_over = False

    @property
    def is_thinking(self) -> bool:
        return self._reasoning is not None and self._reasoning.is_thinking

    @property
    def has_all(self) -> bool:
        if self._tools is None or self._most_calls is None:
            return False
        calls = self._tools.calls
        return calls > self._most_calls or (calls == self._most_calls and not self._tools.is_open)

    def push(self, text: str) -> list[AnyDelta]:
        if self._reasoning is None:
            return self._called([TextDelta(text)])
        return self._called(self._reasoning.push(text))

    def flush(self, *, has_ended: bool = False) -> list[AnyDelta]:
        """The rest. has_ended: by the model itself, not by a limit or a stop string."""
        events = self._called([] if self._reasoning is None else self._reasoning.flush())
        if self._tools is not None:
            events += self._wanted(self._tools.flush(has_ended=has_ended))
        return events

    def reason(self, finish: FinishReason, *, is_named: bool) -> FinishReason:
        """Why the answer ended. A call is one that is whole; where a function was named, to call it
        is just to stop.
        """
        has_calls = self._tools is not None and self._tools.calls > 0 and not self._tools.is_cut
        if finish is FinishReason.STOP and has_calls and not is_named:
            return FinishReason.TOOL_CALLS
        return finish

    def _called(self, events: list[ReasoningEvent]) -> list[AnyDelta]:
        if self._tools is None:
            return [*events]
        found: list[AnyDelta] = []
        for event in events:
            if self._is_over:
                break
            if isinstance(event, ReasoningDelta):
                found.append(event)
            else:
                found += self._wanted(self._tools.push(event.text))
        return found

    def _wanted(self, events: list[ToolEvent]) -> list[ToolEvent]:
        """Without what comes after the last call that may be made."""
        if self._is_over:
            return []
        if self._most_calls is None or not self.has_all:
            return events
        self._is_over = True
        wanted, last = [], self._most_calls - 1
        has_begun = False
        for event in events:
            if isinstance(event, (ToolCallStarted, ToolCallArguments)):
                if event.index > last:
                    break
                has_begun = has_begun or event.index == last
            elif has_begun:
                break
            wanted.append(event)
        return wanted
