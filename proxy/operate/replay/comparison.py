"""Compares recorded answers with those that another deployment gave, and reports what differs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import takewhile
from statistics import median
from typing import IO, Any

import orjson
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from proxy.operate.replay.recorded import Recorded
from proxy.telemetry.kept_content import fields_of

DATA, DONE = "data:", "[DONE]"
TEXTS = ("content", "text", "reasoning_content", "reasoning", "refusal")
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
    choices: dict[int, _Choice] = {}
    usage, errors = None, []
    for chunk in _chunks_of(answer):
        usage = _usage(chunk) or usage
        if isinstance(error := chunk.get("error"), Mapping):
            errors.append(f"error: {error.get('code')}")
        for each in _objects(chunk.get("choices")):
            index = each.get("index")
            choices.setdefault(index if isinstance(index, int) else 0, _Choice()).add(each)
    ordered = [choices[index] for index in sorted(choices)]
    return AnswerFacts(
        status=status,
        finishes=(*(each.finish for each in ordered), *errors),
        usage=usage,
        text="\n".join(each.text for each in ordered) if ordered or errors else answer,
    )


def _chunks_of(answer: str) -> Iterator[Mapping[str, Any]]:
    """The body, or the data of each event. What is no JSON object is left out."""
    lines = [line for line in answer.splitlines() if line.startswith(DATA)]
    for text in [line.removeprefix(DATA).strip() for line in lines] or [answer]:
        if text != DONE and (found := fields_of(text.encode(errors="surrogatepass"))) is not None:
            yield found


class _Choice:
    """What the chunks of a choice have together; a whole answer is one chunk."""

    def __init__(self) -> None:
        self.finish = ""  # without a reason
        self._texts: dict[str, list[str]] = {}
        self._calls: dict[int, dict[str, str]] = {}

    @property
    def text(self) -> str:
        """Texts, by their name, and calls without their ids."""
        texts = ("".join(self._texts[name]) for name in sorted(self._texts))
        calls = (self._calls[at] for at in sorted(self._calls))
        return "\n".join((*texts, *(f"{call['name']}{call['arguments']}" for call in calls)))

    def add(self, chunk: Mapping[str, Any]) -> None:
        self.finish = str(chunk.get("finish_reason") or self.finish)
        message = chunk.get("delta") or chunk.get("message") or chunk
        if not isinstance(message, Mapping):
            return
        for name in TEXTS:
            if isinstance(text := message.get(name), str):
                self._texts.setdefault(name, []).append(text)
        for number, call in enumerate(_objects(message.get("tool_calls"))):
            at = call.get("index")
            known = self._calls.setdefault(
                at if isinstance(at, int) else number, {"name": "", "arguments": ""}
            )
            function = call.get("function")
            if isinstance(function, Mapping):
                for name in known:
                    known[name] += str(function.get(name) or "")


def _objects(value: Any) -> list[Mapping[str, Any]]:
    """The objects of a list; none where it is no list."""
    found = value if isinstance(value, list) else []
    return [each for each in found if isinstance(each, Mapping)]


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
