"""What the line of a request may hold: the fields by name, and the bounds of each.

A field that is not here, or a value of another type, is not written. So no part of the program can
put a prompt, an answer or a key into the line by mistake.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from proxy.telemetry.printable_text import printable, redacted

Bound = Callable[[Any], Any]  # the value to write; None: nothing

NUMBERS = frozenset((int, float))  # and not bool
MOST_NOTES = 16  # OpenAI's bound of `metadata`
MOST_ITEMS = 8
LONGEST_NOTE, LONGEST_NAME, LONGEST_WORD = 512, 256, 64  # characters


def bounded(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that a line may hold."""
    found = {}
    for name, value in fields.items():
        bound = FIELDS.get(name)
        if bound is _number:  # most of them are; a call would cost more than all the rest
            if type(value) in NUMBERS:
                found[name] = value
        elif bound is not None and (kept := bound(value)) is not None:
            found[name] = kept
    return found


def _number(value: Any) -> Any:
    return value if type(value) in NUMBERS else None


def _text(longest: int) -> Bound:
    def bound(value: Any) -> str | None:
        if not isinstance(value, str):
            return None
        if len(value) > longest:
            value = f"{value[:longest]}…"
        value = redacted(value)
        return value if value.isprintable() else printable(value)

    return bound


def _notes(value: Any) -> dict[str, str] | None:
    if not isinstance(value, Mapping):
        return None
    pairs = list(value.items())[:MOST_NOTES]
    return {_name(key): _note(each) for key, each in pairs if isinstance(each, str)}


def _numbers(value: Any) -> dict[str, Any] | None:
    if not isinstance(value, Mapping):
        return None
    pairs = list(value.items())[:MOST_NOTES]
    return {_word(name): each for name, each in pairs if type(each) in NUMBERS}


def _names(value: Any) -> list[str] | None:
    if not isinstance(value, list):
        return None
    return [_name(each) for each in value[:MOST_ITEMS] if isinstance(each, str)]


_word, _name, _note = _text(LONGEST_WORD), _text(LONGEST_NAME), _text(LONGEST_NOTE)

FIELDS: Mapping[str, Bound] = {
    # the request
    "method": _word,
    "path": _name,
    "id": _name,
    "model": _name,
    "trace_id": _word,
    # its caller, and what the caller says of itself
    "tenant": _name,
    "key_id": _name,
    "user": _note,
    "safety_identifier": _note,
    "metadata": _notes,
    "capped_priority": _number,
    # its answer
    "status": _number,
    "finish": _word,
    "error": _word,
    "idempotency": _word,
    "prompt_tokens": _number,
    "cached_tokens": _number,
    "completion_tokens": _number,
    # where it was generated, and how often it was tried
    "endpoints": _names,
    "resent": _number,
    "continued": _number,
    # times
    "ttft_ms": _number,
    "queue_ms": _number,
    "inference_ms": _number,
    "duration_ms": _number,
    "stages_ms": _numbers,
}
