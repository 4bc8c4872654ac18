"""Compares a recorded answer with the one that another deployment gave to the same request."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from proxy.operate.replay.answer_facts import AnswerFacts, facts_of
from proxy.operate.replay.recorded import Recorded
from proxy.telemetry.kept_content import fields_of

STATUS, FINISH, USAGE, TEXT, NO_ANSWER = "status", "finish", "usage", "text", "no answer"


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """The answer of today. status: None if it did not come; `fault` then says why."""

    status: int | None
    answer: str = ""
    ttft_ms: float | None = None
    duration_ms: float = 0.0
    fault: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """is_deterministic: usage and text are compared, too. differs: what is not the same.

    first_difference: the number of equal characters at the begin of different texts.
    """

    recorded: Recorded
    replayed: Replayed
    is_deterministic: bool
    differs: tuple[str, ...]
    first_difference: int | None

    @property
    def ttft_ratio(self) -> float | None:
        """Today's by the recorded one; None where one of them has none, or it was no success."""
        return self._ratio(self.recorded.ttft_ms, self.replayed.ttft_ms)

    @property
    def duration_ratio(self) -> float | None:
        return self._ratio(self.recorded.duration_ms, self.replayed.duration_ms)

    def _ratio(self, before: float | None, after: float | None) -> float | None:
        is_success = self.recorded.status == 200 == self.replayed.status
        return after / before if is_success and before and after is not None else None

    def as_json(self) -> dict[str, Any]:
        """For a line of JSON: no texts, which may be confidential."""
        before, after = self.recorded, self.replayed
        return {
            "request_id": before.request_id,
            "at": before.at,
            "tenant": before.tenant,
            "model": before.model,
            "path": before.path,
            "is_deterministic": self.is_deterministic,
            "differs": self.differs,
            "first_difference": self.first_difference,
            "status": (before.status, after.status),
            "ttft_ms": (before.ttft_ms, after.ttft_ms),
            "duration_ms": (before.duration_ms, after.duration_ms),
            "fault": after.fault or None,
        }


def compare(recorded: Recorded, replayed: Replayed) -> Comparison:
    is_deterministic = _is_deterministic(recorded.body)
    before = facts_of(recorded.status or 0, recorded.answer)
    differs: tuple[str, ...] = (NO_ANSWER,)
    first = None
    if replayed.status is not None:
        after = facts_of(replayed.status, replayed.answer)
        differs = _differences(before, after, is_deterministic=is_deterministic)
        first = _equal_characters(before.text, after.text) if TEXT in differs else None
    return Comparison(
        recorded=recorded,
        replayed=replayed,
        is_deterministic=is_deterministic,
        differs=differs,
        first_difference=first,
    )


def _differences(
    before: AnswerFacts, after: AnswerFacts, *, is_deterministic: bool
) -> tuple[str, ...]:
    has_usage = None not in (before.usage, after.usage)
    checks = {
        STATUS: before.status == after.status,
        FINISH: before.finishes == after.finishes,
        USAGE: not (is_deterministic and has_usage) or before.usage == after.usage,
        TEXT: not is_deterministic or before.text == after.text,
    }
    return tuple(name for name, is_same in checks.items() if not is_same)


def _is_deterministic(body: str) -> bool:
    """Whether the request has a seed, or takes the likeliest token each time."""
    fields = fields_of(body.encode()) or {}
    return fields.get("seed") is not None or fields.get("temperature") == 0


def _equal_characters(one: str, other: str) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))
