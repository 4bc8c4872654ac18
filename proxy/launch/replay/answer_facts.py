"""What can be compared of an answer of OpenAI's form, whole or as a stream of events."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

TEXTS = ("content", "text", "reasoning_content", "reasoning", "refusal")
COUNTS = ("prompt_tokens", "completion_tokens")
DATA, DONE = "data:", "[DONE]"


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
    for part in _parts(answer):
        usage = _usage(part) or usage
        if isinstance(error := part.get("error"), Mapping):
            errors.append(f"error: {error.get('code')}")
        for each in _objects(part.get("choices")):
            choices.setdefault(_index(each), _Choice()).add(each)
    ordered = [choices[index] for index in sorted(choices)]
    return AnswerFacts(
        status=status,
        finishes=(*(each.finish for each in ordered), *errors),
        usage=usage,
        text="\n".join(each.text for each in ordered) if choices or errors else answer,
    )


class _Choice:
    """Joins what the chunks of a choice have; a whole answer is one chunk."""

    def __init__(self) -> None:
        self.finish = ""
        self._texts: dict[str, str] = {}
        self._calls: dict[int, str] = {}

    def add(self, chunk: Mapping[str, Any]) -> None:
        self.finish = str(chunk.get("finish_reason") or self.finish)
        message = chunk.get("delta") or chunk.get("message") or chunk
        if not isinstance(message, Mapping):
            return
        for name in TEXTS:
            if isinstance(text := message.get(name), str):
                self._texts[name] = self._texts.get(name, "") + text
        for number, call in enumerate(_objects(message.get("tool_calls"))):
            function = call.get("function") or {}
            more = f"{function.get('name') or ''}{function.get('arguments') or ''}"
            at = call.get("index", number)
            self._calls[at] = self._calls.get(at, "") + more

    @property
    def text(self) -> str:
        calls = (self._calls[at] for at in sorted(self._calls))
        return "\n".join((*(self._texts[name] for name in sorted(self._texts)), *calls))


def _parts(answer: str) -> Iterable[Mapping[str, Any]]:
    """The body, or the data of each event."""
    lines = [line for line in answer.splitlines() if line.startswith(DATA)]
    for text in [line.removeprefix(DATA).strip() for line in lines] or [answer]:
        if text == DONE:
            continue
        try:
            found = orjson.loads(text)
        except ValueError:
            continue
        if isinstance(found, Mapping):
            yield found


def _objects(value: Any) -> list[Mapping[str, Any]]:
    found = value if isinstance(value, list) else []
    return [each for each in found if isinstance(each, Mapping)]


def _index(choice: Mapping[str, Any]) -> int:
    index = choice.get("index")
    return index if isinstance(index, int) else 0


def _usage(part: Mapping[str, Any]) -> tuple[int, ...] | None:
    usage = part.get("usage")
    if not isinstance(usage, Mapping):
        return None
    counts = tuple(usage.get(name) for name in COUNTS)
    return tuple(each for each in counts if isinstance(each, int))
