"""Builds one choice's output events from text, or what a parser found in it, and log-probabilities.

Called by `choice`.
"""

from __future__ import annotations

from dataclasses import replace

from proxy.domain.answer_times import AnswerTimes
from proxy.domain.events import (
    AnyDelta,
    Finished,
    LoggedToken,
    OutputEvent,
    TextDelta,
)
from proxy.domain.output import FinishReason
from proxy.domain.request import GenerationRequest
from proxy.generation.choice.usage_counter import UsageCounter


class ChoiceEvents:
    """`counter`: the choice's, read for each event that reports usage."""

    def __init__(self, request: GenerationRequest, index: int, counter: UsageCounter) -> None:
        self._index = index
        self._counter = counter
        self._reports_usage = request.reports_usage
        self._returns_ids = request.returns_token_ids
        self._logs = request.sampling.top_log_probs is not None
        self._unsent: list[LoggedToken] = []
        self._unsent_ids: tuple[int, ...] = ()

    def of_text(
        self, text: str, logged: list[LoggedToken], ids: tuple[int, ...]
    ) -> list[OutputEvent]:
        """Without a parser: all of it is text. `ids`: of the tokens taken, if they are returned."""
        ids = ids if self._returns_ids else ()
        if not (text or logged or ids):
            return []
        usage = self._counter.usage if self._reports_usage else None
        return [
            TextDelta(text, choice=self._index, log_probs=tuple(logged), token_ids=ids, usage=usage)
        ]

    def of_found(
        self,
        found: list[AnyDelta],
        logged: list[LoggedToken],
        ids: tuple[int, ...],
        *,
        is_last: bool,
    ) -> list[OutputEvent]:
        """What the parser found; the first event has the log-probabilities and ids of all tokens so
        far."""
        self._unsent += logged
        self._unsent_ids += ids if self._returns_ids else ()
        if not found:
            if not is_last or not (self._unsent or self._unsent_ids):
                return []
            found = [TextDelta("")]
        usage = self._counter.usage if self._reports_usage else None
        first, *others = [replace(delta, choice=self._index, usage=usage) for delta in found]
        tokens, self._unsent = tuple(self._unsent), []
        ids, self._unsent_ids = self._unsent_ids, ()
        return [replace(first, log_probs=tokens, token_ids=ids), *others]

    def finished(self, reason: FinishReason, times: AnswerTimes) -> Finished:
        return Finished(
            reason=reason,
            usage=self._counter.usage,
            choice=self._index,
            mean_log_prob=self._counter.mean_log_prob if self._logs else None,
            times=times,
        )
