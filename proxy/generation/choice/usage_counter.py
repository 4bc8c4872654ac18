"""What one choice has cost so far: tokens, and the log-probabilities that rank it."""

from __future__ import annotations

from proxy.domain.output import TokenDelta, Usage


class UsageCounter:
    """counts_prompt: this choice's usage includes the prompt. counts_cached: and how much of it was
    cached.
    """

    __slots__ = (
        *("_cached", "_counts_cached", "_counts_prompt", "_log_prob_sum", "_prompt"),
        *("reasoning", "tokens"),
    )

    def __init__(self, *, counts_prompt: bool, counts_cached: bool = True) -> None:
        self._counts_prompt = counts_prompt
        self._counts_cached = counts_cached and counts_prompt
        self._prompt = 0
        self._cached = 0
        self._log_prob_sum = 0.0
        self.tokens = 0
        self.reasoning = 0

    def count_prompt(self, delta: TokenDelta) -> None:
        """`delta`: the first of the choice, which has the number of the prompt's tokens."""
        if self._counts_prompt:
            self._prompt = delta.prompt_tokens or 0
        if self._counts_cached:
            self._cached = delta.cached_tokens or 0

    def count_log_prob(self, value: float | None) -> None:
        self._log_prob_sum += value or 0.0

    @property
    def mean_log_prob(self) -> float | None:
        return self._log_prob_sum / self.tokens if self.tokens else None

    @property
    def usage(self) -> Usage:
        return Usage(
            prompt_tokens=self._prompt,
            completion_tokens=self.tokens,
            cached_tokens=self._cached,
            reasoning_tokens=self.reasoning,
        )
