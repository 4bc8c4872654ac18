"""Compares recorded answers with those that another deployment gave, and reports what differs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import takewhile
from statistics import median
from typing import IO, Any

import orjson
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from proxy.operate.replay.answer_chunks import JoinedChoice, JoinedChoices, chunks_of
from proxy.operate.replay.recorded import Recorded
from proxy.telemetry.kept_content import fields_of

COUNTS = ("prompt_tokens", "completion_tokens")


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerFacts:
    """finishes: of the choices, by index; the code of an error. usage: of COUNTS; None: the answer
    has none. text: of all choices, with reasoning and tool calls, but without ids.
    """

    status: int
    finishes: tuple[str, ...]
    usage: tuple[int, ...] | None
    text: str


def facts_of(status: int, answer: str) -> AnswerFacts:
    """An answer that is no JSON has only its status and its text."""
    choices = JoinedChoices()
    usage, errors = None, []
    for chunk in chunks_of(answer):
        usage = _usage(chunk) or usage
        if isinstance(error := chunk.get("error"), Mapping):
            errors.append(f"error: {error.get('code')}")
        choices.add(chunk)
    ordered = choices.ordered
    return AnswerFacts(
        status=status,
        finishes=(*(each.finish for each in ordered), *errors),
        usage=usage,
        text="\n".join(map(_text, ordered)) if ordered or errors else answer,
    )


def _text(choice: JoinedChoice) -> str:
    calls = (f"{call['name']}{call['arguments']}" for call in choice.calls)
    return "\n".join((*choice.texts.values(), *calls))


def _usage(part: Mapping[str, Any]) -> tuple[int, ...] | None:
    usage = part.get("usage")
    if not isinstance(usage, Mapping):
        return None
    counts = tuple(usage.get(name) for name in COUNTS)
    return tuple(each for each in counts if isinstance(each, int))


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


WIDE = 1000
KINDS = (STATUS, FINISH, USAGE, TEXT, NO_ANSWER)


@dataclass(slots=True)
class ModelTotals:
    """requests: sent. compared: those whose text was, too. Ratios: today's by the recorded time."""

    requests: int = 0
    compared: int = 0
    same: int = 0
    differ: Counter[str] = field(default_factory=Counter)
    ttft_ratios: list[float] = field(default_factory=list)
    duration_ratios: list[float] = field(default_factory=list)

    def add(self, one: Comparison) -> None:
        self.requests += 1
        self.compared += one.is_deterministic
        self.same += not one.differs
        self.differ.update(one.differs)
        for ratios, ratio in (
            (self.ttft_ratios, one.ttft_ratio),
            (self.duration_ratios, one.duration_ratio),
        ):
            if ratio is not None:
                ratios.append(ratio)


class Report:
    """lines: where the lines of JSON go; None: nowhere."""

    def __init__(self, lines: IO[bytes] | None) -> None:
        self._lines = lines
        self.by_model: dict[str, ModelTotals] = {}

    @property
    def has_differences(self) -> bool:
        return any(each.differ for each in self.by_model.values())

    def add(self, one: Comparison) -> None:
        self.by_model.setdefault(one.recorded.model or "-", ModelTotals()).add(one)
        if self._lines is not None:
            option = orjson.OPT_APPEND_NEWLINE | orjson.OPT_UTC_Z
            self._lines.write(orjson.dumps(one.as_json(), option=option))


def show(by_model: Mapping[str, ModelTotals]) -> None:
    table = Table(
        "model", "requests", "same", *KINDS, "texts compared", "TTFT", "duration", box=None
    )
    for model, totals in sorted(by_model.items()):
        table.add_row(
            escape(model),
            str(totals.requests),
            str(totals.same),
            *(str(totals.differ[kind]) for kind in KINDS),
            str(totals.compared),
            _ratio(totals.ttft_ratios),
            _ratio(totals.duration_ratios),
        )
    Console(width=WIDE).print(table)


def _ratio(ratios: Iterable[float]) -> str:
    """The median."""
    found = list(ratios)
    return f"x{median(found):.2f}" if found else "-"
