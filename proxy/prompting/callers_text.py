"""Renders a chat so that it is known which control tokens in the prompt are its callers' words.

Callers' texts are marked where they spell a token, with characters that are in none of them, and
rendered once more: the marks go wherever the template puts the texts, and are taken out again.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from itertools import accumulate
from typing import Any

from triton_openai.proxy.domain import plain_spans
from triton_openai.proxy.domain.errors import ErrorCode, InvalidRequest
from triton_openai.proxy.prompting.control_tokens import ControlTokens, Patterns, patterns

Context = Mapping[str, Any]
Write = Callable[[Context], str]
# Of an assistant's message: what it said itself.
OWN_TEXTS = frozenset({"content", "reasoning_content", "reasoning", "thinking"})
MARKS = range(0xE100, 0xF8FF)  # private use


class Placement(Enum):
    """beside: next to a token, so that a template that looks for the token finds it, and white
    space at the ends of a text stays at its ends. within: in the token, which no template finds.
    """

    BESIDE = "beside"
    WITHIN = "within"


@dataclass(frozen=True, slots=True)
class RenderedPrompt:
    """plain_spans: as domain.plain_spans packs them."""

    text: str
    plain_spans: bytes = b""


class LongToMark(Exception):
    """It takes more time than an event loop has."""


@dataclass(frozen=True, slots=True)
class Marks:
    """before: a token begins here. after: one ends here. amid: no token may span this place."""

    before: str
    after: str
    amid: str
    pattern: re.Pattern[str] = field(init=False)

    def __post_init__(self) -> None:
        pattern = re.compile(f"[{self.before}{self.after}{self.amid}]")
        object.__setattr__(self, "pattern", pattern)


def protected(
    write: Write, context: Context, control: ControlTokens, *, at_most: int | None = None
) -> RenderedPrompt:
    """What `write` makes of the template's variables, and the callers' control tokens in it.

    Where the template decides by such a token, and marks keep it from that, it takes the token for
    any other text.

    Raises:
        InvalidRequest: of `write`; or the texts use up the characters for marks.
        LongToMark: the prompt has more than `at_most` characters, and needs marks.
    """
    text = write(context)
    if not control.in_turns or not _may_hold(context, patterns(control.in_turns)):
        return RenderedPrompt(text)
    if at_most is not None and len(text) > at_most:
        raise LongToMark
    marks, found = _marks(text, context), patterns(control.in_turns)
    rendered = RenderedPrompt(text)
    for placement in Placement:
        changed = _marked_context(context, control, placement, marks)
        if changed == context:
            break
        marked = write(changed)
        rendered = _read(_unescaped(marked, text, marks), marks, found)
        if rendered.text == text:
            break
    return rendered


def _may_hold(context: Context, found: Patterns) -> bool:
    """Errs on the safe side: schemas of tools are too large to look at each of their texts."""
    values = [value for key, value in context.items() if key != "messages"]
    for message in context["messages"]:
        for key, value in message.items():
            if not isinstance(value, str):
                values.append(value)
            elif key != "role" and found.may_be_in(value):
                return True
    if all(value is None or isinstance(value, bool) for value in values):  # nearly always
        return False
    return found.may_be_in_json(json.dumps(values, ensure_ascii=False, default=str))


def _texts(context: Context) -> Iterator[str]:
    for key, value in context.items():
        if key != "messages":
            yield from _strings(value)
    for message in context["messages"]:
        for key, value in message.items():
            if key != "role":
                yield from _strings(value)


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield str(key)
            yield from _strings(inner)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from _strings(inner)


def _marks(text: str, context: Context) -> Marks:
    """Characters that neither the callers' texts nor the template's have."""
    used = set(text).union(*map(set, _texts(context)))
    free = (chr(point) for point in MARKS if chr(point) not in used)
    chosen = [character for character, _ in zip(free, range(3), strict=False)]
    if len(chosen) < 3:
        raise InvalidRequest(
            "The messages hold control tokens of the model and nearly all characters for private "
            "use (U+E100 to U+F8FE), so the two cannot be kept apart. Leave out one of them.",
            code=ErrorCode.INVALID_MESSAGES,
            param="messages",
        )
    return Marks(*chosen)


def _marked_context(
    context: Context, control: ControlTokens, placement: Placement, marks: Marks
) -> Context:
    in_turns = partial(_marked, patterns(control.in_turns), placement, marks)
    in_answers = in_turns
    if control.in_answers != control.in_turns:
        in_answers = partial(_marked, patterns(control.in_answers), placement, marks)

    def message(seen: Context) -> Context:
        is_answer = seen["role"] == "assistant"
        texts = {
            key: _each(value, in_answers if is_answer and key in OWN_TEXTS else in_turns)
            for key, value in seen.items()
        }
        return {
            **texts,
            "role": seen["role"],
        }  # never marked: templates compare it, and build tokens from it

    values = {key: _each(value, in_turns) for key, value in context.items() if key != "messages"}
    return {**values, "messages": [message(one) for one in context["messages"]]}


def _each(value: Any, change: Callable[[str], str]) -> Any:
    """The value with all of its texts changed, names of members among them."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {_each(key, change): _each(inner, change) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_each(inner, change) for inner in value]
    return value


def _marked(found: Patterns, placement: Placement, marks: Marks, text: str) -> str:
    if not found.may_be_in(text):
        return text
    stripped = text.strip()
    begin = text.find(stripped)
    before, after = text[:begin], text[begin + len(stripped) :]
    pieces = found.split(stripped)
    tokens = pieces[1::2]
    if placement is Placement.WITHIN:
        pieces[1::2] = [f"{token[0]}{marks.amid}{token[1:]}" for token in tokens]
    else:
        pieces[1::2] = [marks.before + token for token in tokens]
        if tokens and not pieces[0]:
            pieces[1] = tokens[0] + marks.after
    begun = marks.amid if found.begins_amid(stripped) else ""
    ending = marks.amid if found.ends_amid(stripped) else ""
    return "".join((before, begun, *pieces, ending, after))


def _unescaped(marked: str, text: str, marks: Marks) -> str:
    """With marks that `tojson(ensure_ascii=true)` has written as JSON does."""
    for mark in (marks.before, marks.after, marks.amid):
        escaped = json.dumps(mark)[1:-1]
        if escaped in marked and escaped not in text:
            marked = marked.replace(escaped, mark)
    return marked


def _read(marked: str, marks: Marks, found: Patterns) -> RenderedPrompt:
    """The text without its marks, and the tokens in it that one of them speaks of."""
    pieces = marks.pattern.split(marked)
    places = list(accumulate(map(len, pieces[:-1])))
    text = "".join(pieces)
    kinds = marks.pattern.findall(marked)
    spans = _spans(text, places, kinds, marks, found)
    return RenderedPrompt(text, plain_spans.packed(spans))


def _spans(
    text: str, places: list[int], kinds: list[str], marks: Marks, found: Patterns
) -> Iterator[tuple[int, int]]:
    """`places`: of marks of these kinds, in order."""
    begins = {place for place, kind in zip(places, kinds, strict=True) if kind == marks.before}
    ends = {place for place, kind in zip(places, kinds, strict=True) if kind == marks.after}
    for token in found.whole.finditer(text):
        start, end = token.span()
        if start in begins or end in ends:
            yield start, end
            continue
        next_place = bisect_right(places, start)
        if next_place < len(places) and places[next_place] < end:
            yield start, end
