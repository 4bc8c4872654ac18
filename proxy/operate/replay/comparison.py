"""Compares recorded answers with those that another deployment gave, and reports what differs."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import takewhile
from statistics import median
from typing import IO, Any

import orjson
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from proxy.journal.journal import Recorded
from proxy.telemetry.kept_content import fields_of, objects_of

DATA, DONE = "data:", "[DONE]"
TEXTS = ("content", "text", "reasoning_content", "reasoning", "refusal")
COUNTS = ("prompt_tokens", "completion_tokens")
# Anthropic's. Which of its prompt tokens were cached is no difference.
MESSAGE_TEXTS = ("text", "thinking", "partial_json", "name", "input")
MESSAGE_COUNTS = ("input_tokens", "cache_read_input_tokens", "output_tokens")
# OpenAI's responses. What ends one has all of it.
ENDED = ("completed", "incomplete")
RESPONSE_TEXTS = ("name", "arguments", "input", "text")
RESPONSE_COUNTS = ("input_tokens", "output_tokens")
STATUS, FINISH, USAGE, TEXT, NO_ANSWER = "status", "finish", "usage", "text", "no answer"
KINDS = (STATUS, FINISH, USAGE, TEXT, NO_ANSWER)
WIDE = 1000


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
    """An answer that is not JSON has only its status and its text."""
    finishes: dict[int, str] = {}
    texts: defaultdict[tuple[int, int, str], list[str]] = defaultdict(list)
    usage, errors = None, []
    for chunk in _chunks_of(answer):
        if isinstance(counts := chunk.get("usage"), Mapping):
            numbers = (counts.get(name) for name in COUNTS)
            usage = tuple(each for each in numbers if isinstance(each, int)) or usage
            new, cached, out = (counts.get(name) for name in MESSAGE_COUNTS)
            if isinstance(new, int) and isinstance(out, int):
                usage = (new + (cached if isinstance(cached, int) else 0), out)
        response = chunk.get("response", chunk)
        if isinstance(response, Mapping) and response.get("status") in ENDED:
            finishes[0] = str(response["status"])
            if isinstance(counts := response.get("usage"), Mapping):
                usage = tuple(counts[name] for name in RESPONSE_COUNTS if name in counts) or usage
            for at, item in enumerate(objects_of(response.get("output"))):
                parts = (item, *objects_of(item.get("content")))
                for text in (part.get(name) for part in parts for name in RESPONSE_TEXTS):
                    texts[at, -1, "item"].append(str(text or ""))
            continue
        if isinstance(error := chunk.get("error"), Mapping):
            errors.append(f"error: {error.get('code') or error.get('type')}")
        for choice in objects_of(chunk.get("choices")):
            at = _number(choice, 0)
            finishes[at] = str(choice.get("finish_reason") or finishes.get(at, ""))
            for call, name, text in _texts_of(choice):
                texts[at, call, name].append(text)
        for at, block in _blocks_of(chunk):
            for name in MESSAGE_TEXTS:
                if (value := block.get(name)) not in (None, {}):
                    texts[at, -1, "block"].append(str(value))
        delta = chunk.get("delta")
        for end in (chunk, delta if isinstance(delta, Mapping) else {}):
            if isinstance(reason := end.get("stop_reason"), str):
                finishes[0] = reason
    has_facts = finishes or errors
    return AnswerFacts(
        status=status,
        finishes=(*(finishes[at] for at in sorted(finishes)), *errors),
        usage=usage,
        text="\n".join("".join(texts[key]) for key in sorted(texts)) if has_facts else answer,
    )


def _chunks_of(answer: str) -> Iterator[Mapping[str, Any]]:
    """The body, or the data of each event. What is no JSON object is left out."""
    lines = [line for line in answer.splitlines() if line.startswith(DATA)]
    for text in [line.removeprefix(DATA).strip() for line in lines] or [answer]:
        if text != DONE and (found := fields_of(text)) is not None:
            yield found


def _blocks_of(chunk: Mapping[str, Any]) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Those of a message of Anthropic's API, or a part of one in an event of its stream."""
    if chunk.get("type") == "message":
        yield from enumerate(objects_of(chunk.get("content")))
    for name in ("content_block", "delta"):
        if isinstance(block := chunk.get(name), Mapping):
            yield _number(chunk, 0), block


def _texts_of(choice: Mapping[str, Any]) -> Iterator[tuple[int, str, str]]:
    """The texts of a choice, or of its chunk: (number of the tool call or -1, name, text)."""
    message = choice.get("delta") or choice.get("message") or choice
    if not isinstance(message, Mapping):
        return
    for name in TEXTS:
        if isinstance(text := message.get(name), str):
            yield -1, name, text
    for number, call in enumerate(objects_of(message.get("tool_calls"))):
        if isinstance(called := call.get("function") or call.get("custom"), Mapping):
            for name in ("name", "arguments", "input"):
                yield _number(call, number), name, str(called.get(name) or "")


def _number(found: Mapping[str, Any], usual: int) -> int:
    index = found.get("index")
    return index if isinstance(index, int) else usual


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
        before = facts_of(recorded.status or 0, recorded.answer)
        after = facts_of(replayed.status, replayed.answer)
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
