"""The port between the engine's shell (model.py) and its runtimes.

A runtime takes jobs and writes each job's tokens to the job's sink. The shell knows Triton, a
runtime does not.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal, Protocol

from block_log import BlockLog
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
# Codes of refusals; the proxy turns them into API errors.
INVALID_PARAMETER, GUIDE_TOO_SLOW, QUEUE_FULL = "invalid_parameter", "guide_too_slow", "queue_full"
DEADLINE_EXCEEDED, FOREIGN_ANSWER = "deadline_exceeded", "foreign_answer"
CONTEXT_LENGTH_EXCEEDED = "context_length_exceeded"
RESUME_PARAM = "resume_from"  # the tensor with the number of generated_ids


class BadParameter(ValueError):
    """A request's value is out of range; `param` is the name of its tensor."""

    def __init__(self, param: str, message: str, code: str = INVALID_PARAMETER) -> None:
        super().__init__(message)
        self.param = param
        self.code = code


def _scalar(
    default: float | None,
    least: float | None = None,
    most: float = math.inf,
    *,
    tensor: str = "",
    is_rare: bool = False,
) -> Any:
    """A row of the table of parameters that are a tensor's one element.

    least: None where any value is allowed. tensor: its name, if not the parameter's. is_rare: the
    libraries get it, by the same name, only if it is not the default; not all support it.
    """
    bounds = None if least is None else (least, most)
    return field(default=default, metadata={"bounds": bounds, "tensor": tensor, "is_rare": is_rare})


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """How to choose the next token. The defaults leave the model's distribution unchanged.

    temperature: 0 is greedy. top_k: 0 keeps all tokens. seed: None draws a random seed.
    logit_bias: (token id, number to add to its logit). allowed_token_ids: the only ids to choose
    from. bad_words: sequences of token ids that must never be completed. min_tokens: the least
    number of output tokens. log_probs: None for no log-probabilities, else the number of
    alternatives to report with the sampled token (0 to 20).
    """

    temperature: float = _scalar(1.0, 0)
    top_k: int = _scalar(0, 0, tensor="runtime_top_k")
    top_p: float = _scalar(1.0, 0, 1, tensor="runtime_top_p")
    min_p: float = _scalar(0.0, 0, 1, is_rare=True)
    seed: int | None = _scalar(None)
    repetition_penalty: float = _scalar(1.0, 1e-6, is_rare=True)
    presence_penalty: float = _scalar(0.0, -math.inf, is_rare=True)
    frequency_penalty: float = _scalar(0.0, -math.inf, is_rare=True)
    logit_bias: tuple[tuple[int, float], ...] = ()
    allowed_token_ids: tuple[int, ...] | None = None
    bad_words: tuple[tuple[int, ...], ...] = ()
    min_tokens: int = _scalar(0, 0, is_rare=True)
    ignore_eos: bool = _scalar(False)
    stop_token_ids: frozenset[int] = frozenset()
    log_probs: int | None = None

    def __post_init__(self) -> None:
        for name, (least, most) in _BOUNDS.items():
            _check(name, getattr(self, name), least, most)
        _check("num_top_log_probs", self.log_probs or 0, 0, TOP_LOG_PROBS_AT_MOST)
        for _, value in self.logit_bias:
            _check("logit_bias", value)

    def changed(self) -> dict[str, float]:
        """The rare parameters that have not their default."""
        values = {name: getattr(self, name) for name in _RARE}
        return {name: value for name, value in values.items() if value != _RARE[name]}


_ROWS = [one for one in fields(SamplingParams) if one.metadata]
SCALARS = {one.name: one.metadata["tensor"] or one.name for one in _ROWS}  # field -> tensor
_BOUNDS = {one.name: one.metadata["bounds"] for one in _ROWS if one.metadata["bounds"]}
_RARE = {one.name: one.default for one in _ROWS if one.metadata["is_rare"]}


def _check(param: str, value: float, least: float = -math.inf, most: float = math.inf) -> None:
    if not (least <= value <= most and math.isfinite(value)):
        raise BadParameter(param, f"{param} is {value}, must be from {least} to {most}")


@dataclass(frozen=True, slots=True)
class Guide:
    """What the output must conform to. `text` is empty for kind "json", which means any JSON."""

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
    """One prompt and how to continue it.

    max_tokens: new tokens at most; 0 is allowed if `echoes_prompt`.
    echoes_prompt: report the prompt's tokens first, with their log-probabilities if `sampling`
    wants log-probabilities.
    priority: the highest goes first, and takes the row of a lower one if all rows are taken.
    cache_salt: requests share cached keys and values only if their salts are equal.
    lora_name: the LoRA adapter to use; empty for the model without an adapter.
    generated_ids: the beginning of the answer, if an engine has generated it before. The job
    continues after them as if it had generated them itself, and reports only later tokens.
    max_tokens counts them; `echoes_prompt` is False then.
    images: files as base64, in the order of their places in the prompt. A place is one token.
    """

    prompt_ids: list[int]
    max_tokens: int
    sampling: SamplingParams = field(default_factory=SamplingParams)
    guide: Guide | None = None
    priority: int = 0
    cache_salt: str = ""
    lora_name: str = ""
    echoes_prompt: bool = False
    generated_ids: list[int] = field(default_factory=list)
    images: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class TokenLogProbs:
    """Natural logarithms of the model's own probabilities, before any penalty, bias or guide.

    `top` holds the most likely tokens, best first, as (token id, log-probability). The first
    token of a prompt follows nothing: it has NaN, and alternatives of id -1 with -inf.
    """

    sampled: float
    top: tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True)
class Token:
    """One token; it has `log_probs` if the job wants them."""

    id: int
    log_probs: TokenLogProbs | None = None


class TokenSink(Protocol):
    """Receives one job's tokens. The runtime calls it from its own thread, never after an end."""

    def started(
        self,
        cached_tokens: int,
        *,
        is_late: bool = False,
        began_at: float | None = None,
        blocks: Sequence[int] = (),
        prompt_tokens: int | None = None,
    ) -> None:
        """Prefill begins; `cached_tokens` of the prompt come from the cache. Called once.

        is_late: prefill began earlier, at a time that the runtime does not know. began_at: the
        time, of time.monotonic, if not now. blocks: of the prompt, see BlockLog.of_prompt.
        prompt_tokens: with those of its images, if it has any.
        """

    def preempted(self) -> None:
        """The job has lost its row, and waits for another one."""

    def resumed(self) -> None:
        """Prefill begins again, after a preemption."""

    def echo(self, tokens: list[Token], finish: FinishReason | None) -> None:
        """The prompt's tokens, once, before the first new token; a finish reason ends the job."""

    def token(self, token: Token, finish: FinishReason | None) -> None:
        """A new token; a finish reason says that it is the last one."""

    def finished(self, finish: FinishReason) -> None:
        """The job ends without another token."""

    def refuse(self, param: str, message: str, *, code: str = INVALID_PARAMETER) -> None:
        """The job ends because of a value in the request."""

    def fail(self, message: str) -> None:
        """The job ends because of an error in the server."""

    def cancelled(self) -> None:
        """The job ends because it was cancelled."""

    def is_behind(self) -> bool:
        """Whether some tokens that it received have not been sent yet."""

    def is_abandoned(self) -> bool:
        """Whether the client has disconnected. Cheap, because runtimes call it at every step."""


class Job:
    """One running generation: its input, its sink, and the flag that ends it at the next step."""

    __slots__ = ("input", "is_cancelled", "request_id", "sink")

    def __init__(self, request_id: str, generation: GenerationInput, sink: TokenSink) -> None:
        self.request_id = request_id
        self.input = generation
        self.sink = sink
        self.is_cancelled = False


class Runtime(Protocol):
    """Generates the tokens of many jobs at once. runtimes.py lists the implementations."""

    def submit(self, job: Job) -> None:
        """Returns at once."""

    def cancel(self, request_id: str) -> bool:
        """Asks for the end of all jobs with that id. Returns at once whether there are any, or were
        any lately: a stop of what has ended must not end a later job with the same id.
        """

    def close(self) -> None:
        """Ends all jobs and frees the model."""

    @property
    def stats(self) -> Stats:
        """Its counters. A counter that the runtime does not have stays 0."""

    @property
    def blocks(self) -> BlockLog | None:
        """What its KV cache holds; None if it does not know."""
