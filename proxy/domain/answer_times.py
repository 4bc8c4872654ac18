"""How long engines worked on an answer."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerTimes:
    """In seconds, over all engine streams of the answer; None where an engine does not report it.

    queue_s: waits for a row in the engine. prefill_s, decode_s: see domain.output.EngineTimes.
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
