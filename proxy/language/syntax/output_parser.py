"""The text of an answer -> reasoning, text and tool calls: one parser behind the other."""

from __future__ import annotations

from proxy.domain.events import (
    AnyDelta,
    ReasoningDelta,
    ReasoningEvent,
    TextDelta,
    ToolCallArguments,
    ToolCallStarted,
    ToolEvent,
)
from proxy.domain.output import FinishReason
from proxy.language.syntax.custom_inputs import CustomInputs
from proxy.language.syntax.reasoning import ReasoningParser
from proxy.language.syntax.tool_parser import ToolParser


class OutputParser:
    """The reasoning parser comes first; the tool parser reads the text that it leaves.

    Args:
        inputs: of the custom tools; None where there are none.
        most_calls: text after this number of calls is dropped, and the answer `has_all`.
    """

    def __init__(
        self,
        reasoning: ReasoningParser | None,
        tools: ToolParser | None,
        *,
        inputs: CustomInputs | None = None,
        most_calls: int | None = None,
    ) -> None:
        self._reasoning = reasoning
        self._tools = tools
        self._inputs = inputs
        self._most_calls = most_calls
        self._is_over = False

    @property
    def is_thinking(self) -> bool:
        return self._reasoning is not None and self._reasoning.is_thinking

    @property
    def has_all(self) -> bool:
        """Whether the answer has as many calls as it may have, so that the engine can stop."""
        if self._tools is None or self._most_calls is None:
            return False
        calls = self._tools.calls
        return calls > self._most_calls or (calls == self._most_calls and not self._tools.is_open)

    def push(self, text: str) -> list[AnyDelta]:
        if self._reasoning is None:
            return self._with_calls([TextDelta(text)])
        return self._with_calls(self._reasoning.push(text))

    def flush(self, *, has_ended: bool = False) -> list[AnyDelta]:
        """The last events. has_ended: the model ended the answer, not a limit or a stop string."""
        events = self._with_calls([] if self._reasoning is None else self._reasoning.flush())
        if self._tools is not None:
            events += self._of_calls(self._tools.flush(has_ended=has_ended), is_last=True)
        return events

    def reason(self, finish: FinishReason, *, is_named: bool) -> FinishReason:
        """The finish reason for the client: `tool_calls` if the answer has a complete call, unless
        the request named the function to call, for which OpenAI's is `stop`.
        """
        has_calls = self._tools is not None and self._tools.calls > 0 and not self._tools.is_cut
        if finish is FinishReason.STOP and has_calls and not is_named:
            return FinishReason.TOOL_CALLS
        return finish

    def _with_calls(self, events: list[ReasoningEvent]) -> list[AnyDelta]:
        if self._tools is None:
            return [*events]
        found: list[AnyDelta] = []
        for event in events:
            if self._is_over:
                break
            if isinstance(event, ReasoningDelta):
                found.append(event)
            else:
                found += self._of_calls(self._tools.push(event.text))
        return found

    def _of_calls(self, events: list[ToolEvent], *, is_last: bool = False) -> list[ToolEvent]:
        """What the client gets of the tool parser's events."""
        found = self._up_to_last_call(events)
        return found if self._inputs is None else self._inputs.decoded(found, is_last=is_last)

    def _up_to_last_call(self, events: list[ToolEvent]) -> list[ToolEvent]:
        """The events without those that come after the last permitted call."""
        if self._is_over:
            return []
        if self._most_calls is None or not self.has_all:
            return events
        self._is_over = True
        kept, last = [], self._most_calls - 1
        has_begun = False
        for event in events:
            if isinstance(event, (ToolCallStarted, ToolCallArguments)):
                if event.index > last:
                    break
                has_begun = has_begun or event.index == last
            elif has_begun:
                break
            kept.append(event)
        return kept
