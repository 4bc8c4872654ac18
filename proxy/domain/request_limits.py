"""What one request may ask for at most: the operator's limits, from settings and models.yaml."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

Number = TypeVar("Number", int, float)


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestLimits:
    """None for no limit. In tokens, in choices of one prompt, and in seconds of a generation.

    max_tokens: of one choice, the default where the caller gives none. prompt_tokens: of each
    prompt.
    """

    max_tokens: int | None = None
    n: int | None = None
    best_of: int | None = None
    prompt_tokens: int | None = None
    timeout_s: float | None = None

    def and_also(self, others: RequestLimits) -> RequestLimits:
        """Takes the lower of the two limits, field by field."""
        return RequestLimits(
            max_tokens=smaller(self.max_tokens, others.max_tokens),
            n=smaller(self.n, others.n),
            best_of=smaller(self.best_of, others.best_of),
            prompt_tokens=smaller(self.prompt_tokens, others.prompt_tokens),
            timeout_s=smaller(self.timeout_s, others.timeout_s),
        )

    @property
    def need_the_tokenizer(self) -> bool:
        """Whether Triton's tokenizer must check some: only it counts a prompt's tokens."""
        return self.max_tokens is not None or self.prompt_tokens is not None


def smaller(one: Number | None, other: Number | None) -> Number | None:
    """None: no limit."""
    return min((limit for limit in (one, other) if limit is not None), default=None)
