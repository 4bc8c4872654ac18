"""Compares recorded answers with those that another deployment gave, and reports what differs."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import takewhile
from statistics import median
from typing import IO, Any

import orjson
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from proxy.api.manifest import AnswerWords
from proxy.api.protocols import words_at
from proxy.journal.journal import Recorded
from proxy.telemetry.kept_content import fields_of

DATA = "data:"
STATUS, FINISH, USAGE, TEXT, NO_ANSWER = "status", "finish", "usage", "text", "no answer"
KINDS = (STATUS, FINISH, USAGE, TEXT, NO_ANSWER)
WIDE = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerFacts:
    """finishes: of the choices, by index; the code of an error. usage: tokens of the prompt and of
    the answer; None: the answer has none. text: of all choices, with reasoning and tool calls, but
    without ids.
    """

    status: int
    finishes: tuple[str, ...]
    usage: tuple[int, int] | None
    text: str


def facts_of(status: int, answer: str, words: AnswerWords | None) -> AnswerFacts:
    """An answer that is not JSON, or has no words, has only its status and its text."""
    found = None if words is None else _Reading(words, answer)
    if found is None or not (found.finishes or found.errors):
        return AnswerFacts(status=status, finishes=(), usage=None, text=answer)
    # Items of a response have a status, as the response does.
    highest = min(map(len, found.finishes), default=0)
    finishes = (text for at, text in sorted(found.finishes.items()) if len(at) == highest)
    return AnswerFacts(
        status=status,
        finishes=(*finishes, *found.errors),
        usage=found.usage,
        text="\n".join("".join(found.texts[place]) for place in sorted(found.texts)),
    )


Place = tuple[int, ...]  # the `index` of each object around a field, or its number in a list


class _Reading:
    """What stands in a body, or in each line or event of a stream that is a JSON object."""

    def __init__(self, words: AnswerWords, answer: str) -> None:
        self._words = words
        self.finishes: dict[Place, str] = {}
        self.texts: defaultdict[tuple[Place, str], list[str]] = defaultdict(list)
        self.usage: tuple[int, int] | None = None
        self.errors: list[str] = []
        for text in (answer,) if fields_of(answer) is not None else answer.split("\n"):
            if (chunk := fields_of(text.removeprefix(DATA))) is not None:
                self._read(chunk)

    def _read(self, chunk: Mapping[str, Any]) -> None:
        words = self._words
        if words.whole is not None and isinstance(whole := chunk.get(words.whole), Mapping):
            chunk = whole
            self.finishes.clear()
            self.texts.clear()
        waiting: list[tuple[Place, Mapping[str, Any]]] = [(_within((), chunk), chunk)]
        while waiting:
            at, fields = waiting.pop()
            for name, value in fields.items():
                if name == "usage" and isinstance(value, Mapping):
                    self._count(value)
                elif name == "error" and isinstance(value, Mapping):
                    self.errors.append(f"error: {value.get('code') or value.get('type')}")
                elif name == words.finish and isinstance(value, str):
                    self.finishes[at] = value
                elif name in words.texts and isinstance(value, str | Mapping):
                    self.texts[at, name].append(str(value or ""))
                elif isinstance(value, Mapping):
                    waiting.append((at, value))
                elif isinstance(value, list):
                    for number, each in enumerate(value):
                        if isinstance(each, Mapping):
                            waiting.append((_within(at, each, number), each))

    def _count(self, usage: Mapping[str, Any]) -> None:
        counts = {name: count for name, count in usage.items() if isinstance(count, int)}
        output = counts.get(self._words.output_tokens)
        if output is not None:
            self.usage = sum(counts.get(each, 0) for each in self._words.prompt_tokens), output


def _within(at: Place, fields: Mapping[str, Any], *number: int) -> Place:
    """number: in a list, for an object without an `index`."""
    index = fields.get("index")
    return (*at, index) if isinstance(index, int) else (*at, *number)


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """The answer to a request that was sent again.

    status: None if it did not come; `fault` then says why.
    """

    status: int | None
    answer: str = ""
    ttft_ms: float | None = None
    duration_ms: float = 0.0
    fault: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A line of JSON: no texts, which may be confidential. Pairs are the recorded value and the
    replayed one.

    is_deterministic: usage and text are compared, too. differs: what is not the same.
    first_difference: the number of equal characters at the begin of different texts.
    """

    request_id: str
    at: datetime
    tenant: str
    model: str | None
    path: str
    is_deterministic: bool
    differs: tuple[str, ...]
    first_difference: int | None
    status: tuple[int | None, int | None]
    ttft_ms: tuple[float | None, float | None]
    duration_ms: tuple[float, float]
    fault: str | None

    @property
    def ttft_ratio(self) -> float | None:
        """Today's by the recorded one; None where one of them has none, or it was no success."""
        return self._ratio(self.ttft_ms)

    @property
    def duration_ratio(self) -> float | None:
        return self._ratio(self.duration_ms)

    def _ratio(self, pair: tuple[float | None, float | None]) -> float | None:
        before, after = pair
        is_success = self.status == (200, 200)
        return after / before if is_success and before and after is not None else None


def compare(recorded: Recorded, replayed: Replayed) -> Comparison:
    fields = fields_of(recorded.body) or {}
    # It has a seed, or takes the likeliest token each time.
    is_deterministic = fields.get("seed") is not None or fields.get("temperature") == 0
    differs: tuple[str, ...] = (NO_ANSWER,)
    first = None
    if replayed.status is not None:
        words = words_at(recorded.path)
        before = facts_of(recorded.status or 0, recorded.answer, words)
        after = facts_of(replayed.status, replayed.answer, words)
        differs = _differences(before, after, is_deterministic=is_deterministic)
        if TEXT in differs:
            pairs = zip(before.text, after.text, strict=False)
            first = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
    return Comparison(
        request_id=recorded.request_id,
        at=recorded.at,
        tenant=recorded.tenant,
        model=recorded.model,
        path=recorded.path,
        is_deterministic=is_deterministic,
        differs=differs,
        first_difference=first,
        status=(recorded.status, replayed.status),
        ttft_ms=(recorded.ttft_ms, replayed.ttft_ms),
        duration_ms=(recorded.duration_ms, replayed.duration_ms),
        fault=replayed.fault,
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


class Report:
    """lines: where the lines of JSON go; None: nowhere."""

    def __init__(self, lines: IO[bytes] | None) -> None:
        self._lines = lines
        self.by_model: defaultdict[str, list[Comparison]] = defaultdict(list)

    @property
    def has_differences(self) -> bool:
        return any(one.differs for found in self.by_model.values() for one in found)

    def add(self, one: Comparison) -> None:
        self.by_model[one.model or "-"].append(one)
        if self._lines is not None:
            option = orjson.OPT_APPEND_NEWLINE | orjson.OPT_UTC_Z
            self._lines.write(orjson.dumps(one, option=option))

    def show(self) -> None:
        table = Table(
            "model", "requests", "same", *KINDS, "texts compared", "TTFT", "duration", box=None
        )
        for model, found in sorted(self.by_model.items()):
            differ = Counter(kind for one in found for kind in one.differs)
            table.add_row(
                escape(model),
                str(len(found)),
                str(sum(not one.differs for one in found)),
                *(str(differ[kind]) for kind in KINDS),
                str(sum(one.is_deterministic for one in found)),
                _median([one.ttft_ratio for one in found]),
                _median([one.duration_ratio for one in found]),
            )
        Console(width=WIDE).print(table)


def _median(ratios: list[float | None]) -> str:
    found = [ratio for ratio in ratios if ratio is not None]
    return f"x{median(found):.2f}" if found else "-"
