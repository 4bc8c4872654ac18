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
class Alternative:
    """A token that could have come, and the natural logarithm of its probability."""

    token_bytes: bytes
    log_prob: float


@dataclass(frozen=True, slots=True)
class TokenLogProb:
    """A generated token's own log-probability, and the most likely tokens, the best first."""

    log_prob: float
    top: tuple[Alternative, ...] = ()


@dataclass(frozen=True, slots=True)
class TokenDelta:
    """One engine response: the raw bytes of each new token, in order.

    `token_ids` and `log_probs` are as many as the tokens, or none where nobody asked for them.
    `prompt_tokens` comes with a stream's first delta, and so does `cached_tokens` where the engine
    says how many of them it had computed before; `finish` comes with its last.
    """

    token_bytes: tuple[bytes, ...]
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    finish: FinishReason | None = None
    token_ids: tuple[int, ...] = ()
    log_probs: tuple[TokenLogProb, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Counted by the engine, in tokens. `cached_tokens` are those of the prompt."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0

    @property
    def total_tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            prompt_tokens=self.prompt_tokens + other.prompt_tokens,
            completion_tokens=self.completion_tokens + other.completion_tokens,
            cached_tokens=self.cached_tokens + other.cached_tokens,
        )


@dataclass(frozen=True, slots=True)
class LoggedToken:
    """A token of the text with its log-probability; it begins `offset` characters into the text."""

    token_bytes: bytes
    log_prob: TokenLogProb
    offset: int


@dataclass(frozen=True, slots=True)
class TextDelta:
    """More of a choice: text, and its tokens where they were asked for.

    `token_ids` has the end token and the tokens of a stop string too, `log_probs` only tokens of
    the text. `usage` is the choice's so far, where it was asked for.
    """

    text: str
    choice: int = 0
    log_probs: tuple[LoggedToken, ...] = ()
    token_ids: tuple[int, ...] = ()
    usage: Usage | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """The last event of a choice.

    `usage` of all choices adds up to the request's: a prompt is counted with its first choice.
    `mean_log_prob` is that of its tokens, where log-probabilities were asked for.
    """

    reason: FinishReason
    usage: Usage
    choice: int = 0
    mean_log_prob: float | None = None


OutputEvent = TextDelta | Finished
Events = AsyncGenerator[OutputEvent, None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One whole choice."""

    text: str
    reason: FinishReason
    log_probs: tuple[LoggedToken, ...] = ()
    token_ids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """The whole answer, what a stream of events adds up to: each choice in its place."""

    choices: tuple[Answer, ...]
    usage: Usage

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
    folded = [_fold_choice(by_choice[choice]) for choice in range(len(by_choice))]
    usage = sum((finished.usage for _, finished in folded), start=Usage())
    return Completion(choices=tuple(answer for answer, _ in folded), usage=usage)


def _fold_choice(events: list[OutputEvent]) -> tuple[Answer, Finished]:
    *deltas, finished = events
    if not isinstance(finished, Finished):
        raise ValueError(f"the events of choice {finished.choice} have no Finished at their end")
    parts: list[TextDelta] = []
    for event in deltas:
        if isinstance(event, Finished):
            raise ValueError(f"events come after {event!r}")
        parts.append(event)
    answer = Answer(
        text="".join(part.text for part in parts),
        reason=finished.reason,
        log_probs=tuple(token for part in parts for token in part.log_probs),
        token_ids=tuple(token for part in parts for token in part.token_ids),
    )
    return answer, finished
