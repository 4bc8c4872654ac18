"""What stands between the engine shell (model.py) and a runtime.

A runtime takes jobs and feeds each job's sink; the shell knows Triton, the runtime does not.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal, Protocol

from stats import Stats

FinishReason = Literal["stop", "length"]
GuideKind = Literal["json", "json_schema", "regex", "ebnf_grammar", "structural_tag"]
GUIDE_KINDS: tuple[GuideKind, ...] = (
    "json",
    "json_schema",
    "regex",
    "ebnf_grammar",
    "structural_tag",
)
TOP_LOG_PROBS_AT_MOST = 20
# Codes of refusals, which the proxy turns into the API's error.
INVALID_PARAMETER, GUIDE_TOO_SLOW, QUEUE_FULL = "invalid_parameter", "guide_too_slow", "queue_full"
DEADLINE_EXCEEDED = "deadline_exceeded"


class BadParameter(ValueError):
    """A value that a caller sent is out of its range; `param` is the tensor's name."""

    def __init__(self, param: str, message: str) -> None:
        super().__init__(message)
        self.param = param


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """How the next token is chosen. The defaults change nothing.

    temperature: 0 is greedy. top_k: 0 keeps all. seed: None draws a random one.
    logit_bias: (token id, what is added to its logit). allowed_token_ids: no other is chosen.
    bad_words: token id sequences that are never completed. min_tokens: no end before so many.
    log_probs: None for none, else how many alternatives beside the sampled token's own (0 to 20).
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int | None = None
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    allowed_token_ids: tuple[int, ...] | None = None
    bad_words: tuple[tuple[int, ...], ...] = ()
    min_tokens: int = 0
    ignore_eos: bool = False
    stop_token_ids: frozenset[int] = frozenset()
    log_probs: int | None = None

    def __post_init__(self) -> None:
        _check("temperature", self.temperature, 0)
        _check("top_k", self.top_k, 0)
        _check("top_p", self.top_p, 0, 1)
        _check("min_p", self.min_p, 0, 1)
        _check("repetition_penalty", self.repetition_penalty, 1e-6)
        _check("presence_penalty", self.presence_penalty)
        _check("frequency_penalty", self.frequency_penalty)
        _check("min_tokens", self.min_tokens, 0)
        _check("num_top_log_probs", self.log_probs or 0, 0, TOP_LOG_PROBS_AT_MOST)
        for _, value in self.logit_bias:
            _check("logit_bias", value)


def _check(param: str, value: float, least: float = -math.inf, most: float = math.inf) -> None:
    if not (least <= value <= most and math.isfinite(value)):
        raise BadParameter(param, f"{param} is {value}, must be from {least} to {most}")


@dataclass(frozen=True, slots=True)
class Guide:
    """What the output must conform to. `text` is empty for kind "json" (any JSON)."""

    kind: GuideKind
    text: str

    @classmethod
    def of(cls, kind: str, text: str) -> Guide:
        """Raises BadParameter for an unknown kind."""
        for known in GUIDE_KINDS:
            if kind == known:
                return cls(known, text)
        raise BadParameter(
            "guided_decoding_guide_type", f"{kind!r} is not one of {', '.join(GUIDE_KINDS)}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationInput:
    """One prompt and how to continue it. `max_tokens` new tokens at most; 0 with an echo alone.

    echoes_prompt: its own tokens come first, with log-probabilities where `sampling` wants them.
    priority: a higher one goes first, and takes the row of a lower one when all are taken.
    cache_salt: only requests of the same salt share cached keys and values.
    lora_name: of the adapter that answers; empty for the model itself.
    """

    prompt_ids: list[int]
    max_tokens: int
    sampling: SamplingParams = field(default_factory=SamplingParams)
    guide: Guide | None = None
    priority: int = 0
    cache_salt: str = ""
    lora_name: str = ""
    echoes_prompt: bool = False


@dataclass(frozen=True, slots=True)
class TokenLogProbs:
    """Natural logarithms, of the model's own distribution: before any penalty, bias or guide.

    A prompt's first token has NaN, and -1 and -inf for alternatives: nothing comes before it.
    `top` is the most likely tokens, best first, as (token id, log-probability).
    """

    sampled: float
    top: tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True)
class Token:
    """One generated token; `log_probs` where the job asked for them."""

    id: int
    log_probs: TokenLogProbs | None = None


class TokenSink(Protocol):
    """Where one job's tokens go. Called from the runtime's own thread, never after an end."""

    def started(self, cached_tokens: int, *, is_late: bool = False) -> None:
        """Prefill begins; so many of the prompt's tokens come from the cache. Called once.

        is_late: prefill began earlier, at a time that the runtime does not know.
        """

    def echo(self, tokens: list[Token], finish: FinishReason | None) -> None:
        """The prompt's own, once, before the first new one; with a finish reason that is all."""

    def token(self, token: Token, finish: FinishReason | None) -> None:
        """A new token; with a finish reason it is the last one."""

    def finished(self, finish: FinishReason) -> None:
        """The job ends without one more token."""

    def refuse(self, param: str, message: str, *, code: str = INVALID_PARAMETER) -> None:
        """The job ends because of what the caller asked for."""

    def fail(self, message: str) -> None:
        """The job ends with an error of ours."""

    def cancelled(self) -> None:
        """The job ends because someone asked for it."""

    def is_behind(self) -> bool:
        """Whether tokens that it was given have not been sent yet."""

    def is_abandoned(self) -> bool:
        """Whether the caller has gone. Cheap: it is asked at every step."""


class Job:
    """A generation under way: input, sink, and the flag that ends it at the next step."""

    __slots__ = ("input", "is_cancelled", "request_id", "sink")

    def __init__(self, request_id: str, generation: GenerationInput, sink: TokenSink) -> None:
        self.request_id = request_id
        self.input = generation
        self.sink = sink
        self.is_cancelled = False


class Runtime(Protocol):
    """Generates tokens. `submit` returns at once."""

    def submit(self, job: Job) -> None: ...

    def cancel(self, request_id: str) -> bool:
        """Ends every waiting or running job of that id; whether there was one."""

    def close(self) -> None:
        """Ends all jobs and frees the model."""

    @property
    def stats(self) -> Stats:
        """Its numbers, of which those that it has no notion of stay 0."""
