"""What one choice costs: tokens, the log-probabilities that rank it, the time of its engines."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from time import perf_counter

from proxy.domain.interrupt import Cause
from proxy.domain.model import ModelCard
from proxy.domain.output import AnswerTimes, EngineTimes, TokenDelta, Usage
from proxy.domain.record import DURATION_BUCKETS_S, RequestRecord, Stage, StageName


class ChoiceCost:
    """Counted for as long as the choice gets deltas. Its engine streams follow one another: each
    has a stage in the request's record.

    Some streams end before their engine has reported its times: at a stop string, when the thinking
    budget is spent, or when they are lost. The proxy's own clock counts for these.

    counts_prompt: this choice's usage includes the prompt. counts_cached: and how much of it was
    cached, which the time of the prefill would show, too.
    """

    __slots__ = (
        "_cached",
        "_clock",
        "_counts_cached",
        "_counts_gaps",
        "_counts_prompt",
        "_first_at",
        "_has_times",
        "_last_at",
        "_log_prob_sum",
        "_paced_from",
        "_paced_tokens",
        "_prompt",
        "_queue_s",
        "_record",
        "_stage",
        "reasoning",
        "times",
        "tokens",
    )

    def __init__(
        self,
        card: ModelCard,
        record: RequestRecord,
        *,
        counts_prompt: bool = True,
        counts_cached: bool = True,
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        self._record = record
        self._clock = clock
        self._has_times = "engine_times" in card.capabilities
        self._counts_prompt = counts_prompt
        self._counts_cached = counts_cached
        self._prompt = 0
        self._cached = 0
        self._log_prob_sum = 0.0
        self.tokens = 0
        self.reasoning = 0
        self.times = AnswerTimes()  # the sum over the streams that are over
        # of the endpoint's stream that runs
        self._stage: Stage | None = None
        self._first_at: float | None = None
        self._queue_s: float | None = None
        # of all endpoints' streams that follow one another in one engine stream
        self._counts_gaps = True
        self._paced_from: float | None = None
        self._last_at = 0.0
        self._paced_tokens = 0  # after the first response
        record.counts.append(self)

    def count_prompt(self, delta: TokenDelta) -> None:
        """`delta`: the first of the choice, which has the number of the prompt's tokens."""
        if self._counts_prompt:
            if self._prompt:  # the new prompt begins with it
                self._record.leave_uncharged("thought", self._prompt)
            self._prompt = delta.prompt_tokens or 0
            if self._counts_cached:
                self._cached = delta.cached_tokens or 0
        else:
            self._record.leave_uncharged("choices", delta.prompt_tokens or 0)

    def count_unused(self, tokens: int) -> None:
        """Tokens that came, and that the answer does not have."""
        self._record.unused_tokens += tokens

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

    def begin_stream(self, *, counts_gaps: bool) -> None:
        """counts_gaps: false for a stream that echoes its prompt: that was not generated."""
        self._counts_gaps, self._paced_from, self._paced_tokens = counts_gaps, None, 0

    def see(self, delta: TokenDelta) -> None:
        """Called with every delta as it arrives. Costs less than a microsecond."""
        if not (delta.token_bytes and self._counts_gaps):
            return
        now = self._clock()
        if self._paced_from is None:
            self._paced_from = now
        else:
            gap_s = now - self._last_at
            self._record.gaps[bisect_left(DURATION_BUCKETS_S, gap_s)] += 1
            self._record.gaps_s += gap_s
            self._paced_tokens += len(delta.token_bytes)
        self._last_at = now

    def end_stream(self, reported: EngineTimes | None) -> None:
        """Once for each `begin_stream`, however it ended."""
        self.end(reported)
        if self._paced_tokens and self._paced_from is not None:
            took_s = self._last_at - self._paced_from
            self._record.token_times_s.append(took_s / self._paced_tokens)

    def begin(self, request_id: str) -> Stage:
        """A stream is sent. Returns the stage that the endpoint's own stages are within."""
        self._stage = stage = Stage(StageName.TRITON, self._record)
        stage.attributes["id"] = request_id
        return stage

    def see_first(self, delta: TokenDelta) -> None:
        """The stream's first delta, with its wait for a row if the engine reports it."""
        if self._stage is not None:
            self._first_at, self._queue_s = perf_counter(), delta.queue_s
            if delta.queue_s is not None:
                self._record.engine_queues_s.append(delta.queue_s)
            self._stage.attributes["first_response_s"] = self._first_at - self._stage.began

    def end(
        self,
        reported: EngineTimes | None = None,
        *,
        cause: Cause | None = None,
        last_at: float | None = None,
    ) -> None:
        """The stream is over, if one runs. One without a delta counts nothing.

        cause: why it ended before its answer did. last_at: when its last delta came; now.
        """
        stage, self._stage = self._stage, None
        first_at, self._first_at = self._first_at, None
        if stage is None:
            return
        stage.ended = now = perf_counter()
        if cause is not None:
            stage.error = cause.value
        if first_at is None:
            return
        if reported is not None:
            self._record.engine_times.append(reported)
            _add_engine_stages(stage, now, reported, self._queue_s or 0.0)
        elif self._has_times:
            prefill_s = first_at - stage.began - (self._queue_s or 0.0)
            decode_s = (now if last_at is None else last_at) - first_at
            reported = EngineTimes(prefill_s=max(prefill_s, 0.0), decode_s=max(decode_s, 0.0))
        self.times += AnswerTimes(
            queue_s=self._queue_s,
            prefill_s=reported.prefill_s if reported and self._counts_cached else None,
            decode_s=reported.decode_s if reported else None,
        )


def _add_engine_stages(whole: Stage, at: float, times: EngineTimes, queue_s: float) -> None:
    """The engine measures durations: its clock is another one, so its stages are placed one before
    the other, back from the last response.
    """
    for name, seconds in (
        (StageName.ENGINE_DECODE, times.decode_s),
        (StageName.ENGINE_PREFILL, times.prefill_s),
        (StageName.ENGINE_QUEUE, queue_s),
    ):
        began = max(at - seconds, whole.began)
        Stage(name, whole.record, whole, began).end(at)
        at = began
