"""What can be compared of an answer of OpenAI's form, whole or as a stream of events."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from proxy.operate.replay.answer_chunks import JoinedChoice, JoinedChoices, chunks_of

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
