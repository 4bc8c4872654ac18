"""The events that a client receives of a generation."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass, field

from proxy.domain.output import NOT_REPORTED, AnswerTimes, FinishReason, Timing, TokenLogProb, Usage
from proxy.domain.server_tools import CallStatus


@dataclass(frozen=True, slots=True)
class LoggedToken:
    """A token of the answer with its log-probability; it begins `offset` characters into it."""

    token_bytes: bytes
    log_prob: TokenLogProb
    offset: int


@dataclass(slots=True, kw_only=True)
class Delta:
    """More of a choice, and of its tokens where the caller wants them.

    `token_ids` has the end token and the tokens of a stop string too, `log_probs` only tokens of
    what is sent, and behind an echoed prompt the end token. `usage` is the choice's so far, where
    the caller wants it.

    Nothing changes one; to make it frozen would take twice the time for each.
    """

    choice: int = 0
    log_probs: tuple[LoggedToken, ...] = ()
    token_ids: tuple[int, ...] = ()
    usage: Usage | None = None


@dataclass(slots=True)
class TextDelta(Delta):
    """More of the answer's text; empty where there are only tokens to report."""

    text: str


@dataclass(slots=True)
class ReasoningDelta(Delta):
    """More of what the model thinks before it answers."""

    text: str


@dataclass(slots=True, kw_only=True)
class ToolCallStarted(Delta):
    """The model calls the tool `name`; `index` counts the calls of a choice from 0."""

    index: int
    id: str
    name: str
    is_custom: bool = False


@dataclass(slots=True, kw_only=True)
class ToolCallArguments(Delta):
    """More of a call's arguments; a finished call's fragments add up to one JSON object, those of
    a custom tool's call to its plain input text.
    """

    index: int
    fragment: str


@dataclass(slots=True, kw_only=True)
class ServerToolCalled(Delta):
    """The model called a tool of the proxy's own; `index` counts these of a choice from 0.

    `arguments`: JSON, as the model wrote it. `result`: what the model got, cut for the client.
    """

    index: int
    id: str
    name: str
    arguments: str
    status: CallStatus
    result: str
    duration_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """The last event of a choice.

    `usage` of all choices adds up to the request's: a prompt is counted with its first choice.
    `stop`: the stop string that ended it. `mean_log_prob` is that of its tokens, where the caller
    wants log-probabilities. `timing` is of the request so far, `times` of this choice.
    """

    reason: FinishReason
    usage: Usage
    choice: int = 0
    stop: str | None = None
    mean_log_prob: float | None = None
    timing: Timing | None = field(default=None, compare=False)
    times: AnswerTimes = field(default=NOT_REPORTED, compare=False)


ToolEvent = TextDelta | ToolCallStarted | ToolCallArguments
ReasoningEvent = TextDelta | ReasoningDelta
AnyDelta = TextDelta | ReasoningDelta | ToolCallStarted | ToolCallArguments | ServerToolCalled
OutputEvent = AnyDelta | Finished
Events = AsyncGenerator[OutputEvent, None]
