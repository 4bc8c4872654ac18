"""The whole answer: what a stream of events adds up to."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

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
from proxy.domain.output import FinishReason, Timing, Usage
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
    """The answers in their order. `timing`: when the last of them had finished."""

    choices: tuple[Answer, ...]
    usage: Usage
    timing: Timing | None = field(default=None, compare=False)

    @property
    def text(self) -> str:
        """Of the first choice."""
        return self.choices[0].text

    @property
    def reason(self) -> FinishReason:
        """Of the first choice."""
        return self.choices[0].reason


def fold(events: Iterable[OutputEvent]) -> Completion:
    """The whole answer.

    Raises:
        ValueError: there is no choice, or one that does not end with exactly one Finished.
    """
    by_choice: dict[int, list[OutputEvent]] = {}
    for event in events:
        by_choice.setdefault(event.choice, []).append(event)
    if sorted(by_choice) != list(range(len(by_choice))) or not by_choice:
        raise ValueError(f"there is no Finished of every choice: {sorted(by_choice)}")
    folded = [fold_choice(by_choice[choice]) for choice in range(len(by_choice))]
    usage = sum((finished.usage for _, finished in folded), start=Usage())
    timings = [finished.timing for _, finished in folded if finished.timing is not None]
    return Completion(
        choices=tuple(answer for answer, _ in folded),
        usage=usage,
        timing=max(timings, key=lambda timing: timing.total_s, default=None),
    )


def fold_choice(events: Sequence[OutputEvent]) -> tuple[Answer, Finished]:
    """One choice's events, which end with its Finished.

    Raises:
        ValueError: they do not.
    """
    *before, finished = events
    if not isinstance(finished, Finished):
        raise ValueError(f"the events of choice {finished.choice} have no Finished at their end")
    deltas: list[AnyDelta] = []
    for event in before:
        if isinstance(event, Finished):
            raise ValueError(f"events come after {event!r}")
        deltas.append(event)
    answer = Answer(
        text="".join(delta.text for delta in deltas if isinstance(delta, TextDelta)),
        reasoning="".join(delta.text for delta in deltas if isinstance(delta, ReasoningDelta)),
        calls=_calls(deltas),
        server_calls=tuple(one for one in deltas if isinstance(one, ServerToolCalled)),
        reason=finished.reason,
        log_probs=tuple(token for delta in deltas for token in delta.log_probs),
        token_ids=tuple(token for delta in deltas for token in delta.token_ids),
    )
    return answer, finished


def _calls(deltas: list[AnyDelta]) -> tuple[ToolCall, ...]:
    started = [delta for delta in deltas if isinstance(delta, ToolCallStarted)]
    arguments = [""] * len(started)
    for delta in deltas:
        if isinstance(delta, ToolCallArguments):
            arguments[delta.index] += delta.fragment
    return tuple(
        ToolCall(id=call.id, name=call.name, arguments=arguments[call.index]) for call in started
    )
