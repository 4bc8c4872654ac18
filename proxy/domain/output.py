"""What an engine reports about a generation: tokens, how it ended, what it cost."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum


class FinishReason(str, Enum):
    """Why a choice ended: an end token or stop string, the token limit, or calls to be answered."""

    STOP = "stop"
    LENGTH = "length"
    TOOL_CALLS = "tool_calls"


@dataclass(frozen=True, slots=True)
class Alternative:
    """A token that could have come, and the natural logarithm of its probability."""

    token_bytes: bytes
    log_prob: float
    token_id: int | None = None  # where the engine reports it


@dataclass(frozen=True, slots=True)
class TokenLogProb:
    """A token's own log-probability, and the most likely tokens, the best first.

    None for the first token of a prompt, which nothing comes before.
    """

    log_prob: float | None
    top: tuple[Alternative, ...] = ()
    token_id: int | None = None  # where the engine reports it


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineTimes:
    """What the engine measured of one stream. prefill_s: from its row to its first token, without
    what the prefix cache had. decode_s: from there to its last token.
    """

    prefill_s: float
    decode_s: float


@dataclass(frozen=True, slots=True)
class BlockChanges:
    """What an engine has stored in its KV cache, and removed, since the position of an earlier
    answer. is_new: forget all earlier answers. A number stands for the tokens of a block and all
    tokens before it.
    """

    position: int
    is_new: bool
    stored: tuple[int, ...]
    removed: tuple[int, ...]


@dataclass(slots=True)
class TokenDelta:
    """One engine response: the raw bytes of each new token, in order. Nobody changes one; to make
    it frozen would take twice the time for each.

    `token_ids` and `log_probs` are as many as the tokens, or none where the caller wants none.
    `prompt_tokens` comes with a stream's first delta, and so does `cached_tokens` where the engine
    says how many of them it had computed before, and `queue_s`, how long the request waited for a
    place in the engine; `finish` comes with its last, and so does `times` where the engine reports
    them. `prompt_blocks` comes with the first where the engine reports its KV cache: the tokens of
    a block, and then a number for each full block of the prompt, as in BlockChanges; each number
    has eight bytes, little-endian. They stay bytes because the index keeps thousands of prompts.
    `embedding`: in the only delta of a request that embeds: floats of 32 bits, little-endian; of a
    batch one after the other.
    """

    token_bytes: tuple[bytes, ...]
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    finish: FinishReason | None = None
    token_ids: tuple[int, ...] = ()
    log_probs: tuple[TokenLogProb, ...] = ()
    queue_s: float | None = None
    times: EngineTimes | None = None
    prompt_blocks: bytes = b""
    embedding: bytes = b""

    def behind(self, count: int) -> TokenDelta:
        """The delta without its first tokens."""
        return replace(
            self,
            token_bytes=self.token_bytes[count:],
            token_ids=self.token_ids[count:],
            log_probs=self.log_probs[count:],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """In seconds since the request came to the service, queueing included."""

    first_token_s: float
    total_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """In tokens. `cached_tokens` are of the prompt, `reasoning_tokens` of the completion."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0

    @property
    def total_tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            prompt_tokens=self.prompt_tokens + other.prompt_tokens,
            completion_tokens=self.completion_tokens + other.completion_tokens,
            cached_tokens=self.cached_tokens + other.cached_tokens,
            reasoning_tokens=self.reasoning_tokens + other.reasoning_tokens,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerTimes:
    """In seconds, over all engine streams of the answer; None where an engine does not report it.

    queue_s: waits for a row in the engine. prefill_s, decode_s: see EngineTimes.
    """

    queue_s: float | None = 0.0
    prefill_s: float | None = 0.0
    decode_s: float | None = 0.0

    def __add__(self, later: AnswerTimes) -> AnswerTimes:
        """Adds the times of a stream that follows this one."""
        return AnswerTimes(
            queue_s=_sum(self.queue_s, later.queue_s),
            prefill_s=_sum(self.prefill_s, later.prefill_s),
            decode_s=_sum(self.decode_s, later.decode_s),
        )

    def beside(self, other: AnswerTimes) -> AnswerTimes:
        """Adds another choice. Choices wait at the same time, so the longer wait counts."""
        is_known = self.queue_s is not None and other.queue_s is not None
        longest_s = max(self.queue_s or 0.0, other.queue_s or 0.0) if is_known else None
        return AnswerTimes(
            queue_s=longest_s,
            prefill_s=_sum(self.prefill_s, other.prefill_s),
            decode_s=_sum(self.decode_s, other.decode_s),
        )

    @classmethod
    def of_choices(cls, times: Iterable[AnswerTimes]) -> AnswerTimes:
        found = cls()
        for one in times:
            found = found.beside(one)
        return found


NOT_REPORTED = AnswerTimes(queue_s=None, prefill_s=None, decode_s=None)


def _sum(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one + other
