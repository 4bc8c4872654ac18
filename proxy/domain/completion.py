"""The whole answer: what a stream of events adds up to."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from io import StringIO

from proxy.domain.events import (
    AnyDelta,
    Finished,
    LoggedToken,
    OutputEvent,
    ReasoningDelta,
    ServerToolCalled,
    TextDelta,
    ToolCallArguments,
    ToolCallStarted,
)
from proxy.domain.output import NOT_REPORTED, AnswerTimes, FinishReason, Timing, Usage
from proxy.domain.tools import ToolCall


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One whole choice."""

    text: str
    reason: FinishReason
    reasoning: str = ""
    calls: tuple[ToolCall, ...] = ()
    server_calls: tuple[ServerToolCalled, ...] = ()
    log_probs: tuple[LoggedToken, ...] = ()
    token_ids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """The answers in their order. `timing`: when the last of them had finished. `times`: of all."""

    choices: tuple[Answer, ...]
    usage: Usage
    timing: Timing | None = field(default=None, compare=False)
    times: AnswerTimes = field(default=NOT_REPORTED, compare=False)

    @property
    def text(self) -> str:
        """Of the first choice."""
        return self.choices[0].text

    @property
    def reason(self) -> FinishReason:
        """The finish reason of the first choice."""
        return self.choices[0].reason


class Fold:
    """Events of a request, added up as they come: what the last one leaves to do is little."""

    def __init__(self) -> None:
        self._choices: dict[int, ChoiceFold] = {}

    def add(self, event: OutputEvent) -> None:
        """Raises ValueError: the event comes after its choice's Finished."""
        choice = self._choices.get(event.choice)
        if choice is None:
            choice = self._choices[event.choice] = ChoiceFold()
        choice.add(event)

    def completion(self) -> Completion:
        """The whole answer.

        Raises:
            ValueError: there is no choice, or one that has no Finished at its end.
        """
        count = len(self._choices)
        if sorted(self._choices) != list(range(count)) or not count:
            raise ValueError(f"there is no Finished of every choice: {sorted(self._choices)}")
        folded = [self._choices[choice].answer() for choice in range(count)]
        usage = sum((finished.usage for _, finished in folded), start=Usage())
        timings = [finished.timing for _, finished in folded if finished.timing is not None]
        return Completion(
            choices=tuple(answer for answer, _ in folded),
            usage=usage,
            timing=max(timings, key=lambda timing: timing.total_s, default=None),
            times=AnswerTimes.of_choices(finished.times for _, finished in folded),
        )


class ChoiceFold:
    """One choice's events, added up."""

    def __init__(self) -> None:
        self._text = StringIO()
        self._reasoning = StringIO()
        self._calls: list[tuple[ToolCallStarted, StringIO]] = []
        self._server_calls: list[ServerToolCalled] = []
        self._log_probs: list[LoggedToken] = []
        self._token_ids: list[int] = []
        self._finished: Finished | None = None

    def add(self, event: OutputEvent) -> None:
        """Raises ValueError: the event comes after the Finished."""
        if self._finished is not None:
            raise ValueError(f"events come after {self._finished!r}")
        if isinstance(event, Finished):
            self._finished = event
            return
        self._add(event)
        self._log_probs += event.log_probs
        self._token_ids += event.token_ids

    def _add(self, event: AnyDelta) -> None:
        match event:
            case TextDelta():
                self._text.write(event.text)
            case ReasoningDelta():
                self._reasoning.write(event.text)
            case ToolCallStarted():
                self._calls.append((event, StringIO()))
            case ToolCallArguments():
                self._calls[event.index][1].write(event.fragment)
            case ServerToolCalled():
                self._server_calls.append(event)

    def answer(self) -> tuple[Answer, Finished]:
        """Raises ValueError: there is no Finished yet."""
        if self._finished is None:
            raise ValueError("the events of a choice have no Finished at their end")
        answer = Answer(
            text=self._text.getvalue(),
            reasoning=self._reasoning.getvalue(),
            calls=tuple(
                ToolCall(
                    id=call.id,
                    name=call.name,
                    arguments=arguments.getvalue(),
                    is_custom=call.is_custom,
                )
                for call, arguments in self._calls
            ),
            server_calls=tuple(self._server_calls),
            reason=self._finished.reason,
            log_probs=tuple(self._log_probs),
            token_ids=tuple(self._token_ids),
        )
        return answer, self._finished


def fold(events: Iterable[OutputEvent]) -> Completion:
    """The whole answer. Raises as Fold does."""
    folded = Fold()
    for event in events:
        folded.add(event)
    return folded.completion()


def fold_choice(events: Iterable[OutputEvent]) -> tuple[Answer, Finished]:
    """One choice's events, which end with its Finished. Raises as ChoiceFold does."""
    folded = ChoiceFold()
    for event in events:
        folded.add(event)
    return folded.answer()
