"""What comes out of a generation: token deltas from the engine, events for the client, the fold."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable
from dataclasses import dataclass
from enum import Enum


class FinishReason(str, Enum):
    """Why a choice ended: an end token or stop string, or the token limit."""

    STOP = "stop"
    LENGTH = "length"


@dataclass(frozen=True, slots=True)
class TokenDelta:
    """One engine response: the raw bytes of each new token, in order.

    `prompt_tokens` comes with a stream's first delta, and so does `cached_tokens` where the engine
    says how many of them it had computed before; `finish` comes with its last.
    """

    token_bytes: tuple[bytes, ...]
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    finish: FinishReason | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Counted by the engine, in tokens. `cached_tokens` are those of the prompt."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0

    @property
    def total_tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens


@dataclass(frozen=True, slots=True)
class TextDelta:
    """More text of a choice."""

    text: str
    choice: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """The last event of a choice."""

    reason: FinishReason
    usage: Usage
    choice: int = 0


OutputEvent = TextDelta | Finished
Events = AsyncGenerator[OutputEvent, None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """A whole answer: what a stream of events adds up to."""

    text: str
    reason: FinishReason
    usage: Usage


def fold(events: Iterable[OutputEvent]) -> Completion:
    """The whole answer of one choice.

    Raises:
        ValueError: the events do not end with exactly one Finished.
    """
    parts: list[str] = []
    finished: Finished | None = None
    for event in events:
        if finished is not None:
            raise ValueError(f"{event!r} comes after {finished!r}")
        if isinstance(event, Finished):
            finished = event
        else:
            parts.append(event.text)
    if finished is None:
        raise ValueError("the events have no Finished")
    return Completion(text="".join(parts), reason=finished.reason, usage=finished.usage)
