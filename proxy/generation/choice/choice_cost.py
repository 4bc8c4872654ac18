"""What one choice costs: tokens, the log-probabilities that rank it, the time of its engines."""

from __future__ import annotations

import time

from proxy.domain.answer_times import AnswerTimes
from proxy.domain.model import ModelCard
from proxy.domain.output import EngineTimes, TokenDelta, Usage


class UsageCounter:
    """counts_prompt: this choice's usage includes the prompt. counts_cached: and how much of it was
    cached.
    """

    __slots__ = (
        "_cached",
        "_counts_cached",
        "_counts_prompt",
        "_log_prob_sum",
        "_prompt",
        "reasoning",
        "tokens",
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


class ChoiceClock:
    """How long engines worked on the choice: its engine streams follow one another.

    Some streams end before their engine has reported its times: at a stop string, when the thinking
    budget is spent, or when they are lost. The proxy's own clock counts for these.

    reports_prefill: false hides it, since it shows how much of the prompt was cached.
    """

    __slots__ = ("_first_at", "_has_times", "_queue_s", "_reports_prefill", "_sent_at", "_times")

    def __init__(self, card: ModelCard, *, reports_prefill: bool = True) -> None:
        self._has_times = "engine_times" in card.capabilities
        self._reports_prefill = reports_prefill
        self._times = AnswerTimes()
        self._sent_at = 0.0
        self._first_at: float | None = None  # None while no stream has a delta
        self._queue_s: float | None = None

    def begin(self) -> None:
        """A stream is sent. One that ends before its first delta counts nothing."""
        self._sent_at = time.monotonic()

    def see_first(self, queue_s: float | None) -> None:
        """The stream's first delta, with its wait for a row if the engine reports it."""
        self._first_at = time.monotonic()
        self._queue_s = queue_s

    def end(self, reported: EngineTimes | None, last_at: float | None = None) -> None:
        """The stream is over. last_at: when it gave its last delta, of time.monotonic; now."""
        first_at, self._first_at = self._first_at, None
        if first_at is None:
            return
        if reported is None and self._has_times:
            reported = self._measured(first_at, time.monotonic() if last_at is None else last_at)
        self._times += AnswerTimes(
            queue_s=self._queue_s,
            prefill_s=reported.prefill_s if reported and self._reports_prefill else None,
            decode_s=reported.decode_s if reported else None,
        )

    @property
    def times(self) -> AnswerTimes:
        """The sum over the streams that are over."""
        return self._times

    def _measured(self, first_at: float, last_at: float) -> EngineTimes:
        """What the engine would have reported, and the way between."""
        prefill_s = first_at - self._sent_at - (self._queue_s or 0.0)
        return EngineTimes(prefill_s=max(prefill_s, 0.0), decode_s=max(last_at - first_at, 0.0))
