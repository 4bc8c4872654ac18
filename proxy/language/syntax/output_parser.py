"""The text of an answer -> reasoning, text and tool calls: one parser behind the other."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy

from proxy.domain.events import (
    AnyDelta,
    ReasoningEvent,
    TextDelta,
    ToolCallArguments,
    ToolCallStarted,
    ToolEvent,
)
from proxy.domain.output import FinishReason
from proxy.language.syntax.custom_inputs import CustomInputs
from proxy.language.syntax.reasoning import ReasoningParser
from proxy.language.syntax.stop_matcher import StopMatcher
from proxy.language.syntax.tool_parser import ToolParser


class OutputParser:
    """The reasoning parser comes first; stop strings end the text that it leaves, which the tool
    parser reads.

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
        self._calls = 0  # whole ones, at the end of the answer
        self._is_cut = False  # inside a call
        self._has_ended = False
        self.stops = StopMatcher(())
        # Reads what the reasoning parser holds as it comes: at the end it would be much at once.
        self._trial: ToolParser | None = None
        self._on_trial: list[ToolEvent] = []
        if reasoning is not None and tools is not None:
            reasoning.on_held = self._try

    @property
    def is_thinking(self) -> bool:
        return self._reasoning is not None and self._reasoning.is_thinking

    def end_thought(self) -> None:
        """Its end is pushed next, in the model's place: no other one follows it directly."""
        if self._reasoning is not None:
            self._reasoning.may_think_again = False

    @property
    def is_undecided(self) -> bool:
        return self._reasoning is not None and self._reasoning.is_undecided

    @property
    def pending(self) -> int:
        """How many characters were pushed that may be text or a mark of the reasoning."""
        return 0 if self._reasoning is None else self._reasoning.pending

    @property
    def has_all(self) -> bool:
        """Whether the answer has as many calls as it may have, so that the engine can stop."""
        if self._tools is None or self._most_calls is None:
            return False
        calls = self._tools.calls
        return calls > self._most_calls or (calls == self._most_calls and not self._tools.is_open)

    def push(self, text: str) -> list[AnyDelta]:
        if self._reasoning is None:
            return [*self._of_text(self.stops.push(text))]
        return self._read(self._reasoning.push(text))

    def flush(self, *, has_ended: bool = False) -> list[AnyDelta]:
        """The last events. has_ended: the model ended the answer, not a limit or a stop string."""
        draft, events = "", []
        if self._reasoning is not None:
            events = self._reasoning.flush()
            draft = self._reasoning.draft
        found = self._read(events[:-1] if draft else events)
        found += self._of_text(self.stops.flush())
        self._has_ended = has_ended and self.stops.stop is None
        if self._tools is None:
            return found
        if self._trial is not None and draft and self._has_ended and not self._tools.calls:
            return found + self._drafted(self._trial, draft)
        last = self._tools.flush(has_ended=self._has_ended)
        self._calls, self._is_cut = self._tools.calls, self._tools.is_cut and not self.has_all
        return [*found, *self._thought(draft), *self._of_calls(last, is_last=True)]

    def reason(self, finish: FinishReason, *, is_named: bool) -> FinishReason:
        """The finish reason for the client: `tool_calls` if the answer has a complete call, unless
        the request named the function to call, for which OpenAI's is `stop`. `length` if the model
        ended its answer inside a call.
        """
        if self._is_cut:
            return FinishReason.LENGTH if self._has_ended else finish
        if finish is FinishReason.STOP and self._calls and not is_named:
            return FinishReason.TOOL_CALLS
        return finish

    def _try(self, text: str) -> None:
        """Reads calls of text that is held; "": they are a part of the thought."""
        if not text or self._tools is None or self._reasoning is None:
            self._trial = None
            return
        if self._trial is None:
            code = copy(self._reasoning.thought_code)
            self._trial, self._on_trial = self._tools.another(code), []
        self._on_trial += self._trial.push(text)

    def _drafted(self, trial: ToolParser, draft: str) -> list[AnyDelta]:
        """The end of a thought that never ended: its whole calls are calls, the rest is thought."""
        events = self._on_trial + trial.flush(has_ended=True)
        self._tools, self._calls = trial, trial.calls - trial.is_cut
        text = [event.text for event in events if isinstance(event, TextDelta)]
        calls: list[ToolEvent] = [
            event
            for event in events
            if not isinstance(event, TextDelta) and event.index < self._calls
        ]
        thought = self._thought("".join(text) if calls else draft)
        return [*thought, *self._of_calls(calls, is_last=True)]

    def _thought(self, text: str) -> list[ReasoningEvent]:
        if self._reasoning is None or self.stops.stop is not None:
            return []
        return self._reasoning.continued(text)

    def _read(self, events: list[ReasoningEvent]) -> list[AnyDelta]:
        found: list[AnyDelta] = []
        for event in events:
            if self._is_over:
                break
            if isinstance(event, TextDelta):
                found += self._of_text(self.stops.push(event.text))
            elif self.stops.stop is None:
                found.append(event)
        return found

    def _of_text(self, text: str) -> Sequence[AnyDelta]:
        """The events of text that the stop matcher has passed."""
        if self._tools is not None:
            return self._of_calls(self._tools.push(text))
        return [TextDelta(text)] if text else []

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
