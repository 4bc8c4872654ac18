"""Renders a chat, and finds the control tokens in the prompt that come from callers' texts.

Where callers' texts spell a token, they are marked with characters that occur nowhere else, and the
chat is rendered again: the template carries the marks to the places of the texts in the prompt,
where they are removed. Called by `chat_template`.
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

from proxy.domain import plain_spans
from proxy.domain.errors import ErrorCode, InvalidRequest
from proxy.language.prompting import control_tokens
from proxy.language.prompting.control_tokens import ControlTokens, Patterns, patterns

Context = Mapping[str, Any]
Write = Callable[[Context], str]
# The fields of an assistant's message that the model wrote itself.
OWN_TEXTS = frozenset({"content", "reasoning_content", "reasoning", "thinking"})
MARKS = range(0xE100, 0xF8FF)  # private use


class Placement(Enum):
    """Where a mark stands.

    NEXT_TO: next to a token, so that a template that searches for the token still finds it.
    WITHIN: inside the token, so that no template finds it.
    """

    NEXT_TO = "next_to"
    WITHIN = "within"


@dataclass(frozen=True, slots=True)
class RenderedPrompt:
    """plain_spans: the places of callers' tokens, packed by domain.plain_spans.
    leaves_thought_out: see `ReasoningParser.is_left_out`.
    """

    text: str
    plain_spans: bytes = b""
    leaves_thought_out: bool = False


class TooLongToMark(Exception):
    """Marking would take more time than the event loop can give."""


@dataclass(frozen=True, slots=True)
class Marks:
    """The characters that mark callers' tokens.

    before: a token begins here. after: one ends here. within: no token may span this place.
    """

    before: str
    after: str
    within: str
    pattern: re.Pattern[str] = field(init=False)

    def __post_init__(self) -> None:
        pattern = re.compile(f"[{self.before}{self.after}{self.within}]")
        object.__setattr__(self, "pattern", pattern)


def protected(
    write: Write, context: Context, control: ControlTokens, *, at_most: int | None = None
) -> RenderedPrompt:
    """The prompt that `write` renders, with the places of the callers' control tokens in it.

    A template that branches on a token may not find it because of the marks; it then treats the
    token like any other text.

    Raises:
        InvalidRequest: raised by `write`; or the texts leave no characters free for marks.
        TooLongToMark: the prompt has more than `at_most` characters, and needs marks.
    """
    text = write(context)
    if not control.in_turns or not _may_hold(context, patterns(control.in_turns)):
        return RenderedPrompt(text)
    if at_most is not None and len(text) > at_most:
        raise TooLongToMark
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
    """Whether a text may spell a token. Errs on the safe side for tools, if they are few."""
    values = [value for key, value in context.items() if key != "messages"]
    for message in context["messages"]:
        for key, value in message.items():
            if not isinstance(value, str):
                values.append(_part_texts(value) if key == "content" else value)
            elif key != "role" and found.may_be_in(value):
                return True
    if all(value is None or isinstance(value, bool) for value in values):  # nearly always
        return False
    written = json.dumps(values, ensure_ascii=False, default=str)
    if len(written) > control_tokens.LONG_JSON:  # whose search costs more than that of its texts
        return any(map(found.may_be_in, set(_strings(values))))
    return found.may_be_in_json(written)


def _part_texts(content: list[dict[str, str]] | None) -> list[str] | None:
    """Without the parts' types, which are ours."""
    return None if content is None else [part["text"] for part in content if "text" in part]


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
    """Three characters that occur neither in the callers' texts nor in the prompt."""
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
        # Neither the role is marked, which templates compare and build tokens from, nor the types
        # of parts.
        if isinstance(parts := seen.get("content"), list):
            change = in_answers if is_answer else in_turns
            texts["content"] = [
                {**part, "text": change(part["text"])} if "text" in part else part for part in parts
            ]
        return {**texts, "role": seen["role"]}

    values = {key: _each(value, in_turns) for key, value in context.items() if key != "messages"}
    return {**values, "messages": [message(one) for one in context["messages"]]}


def _each(value: Any, change: Callable[[str], str]) -> Any:
    """The value with all of its texts changed, names of members included."""
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
        pieces[1::2] = [f"{token[0]}{marks.within}{token[1:]}" for token in tokens]
    else:
        pieces[1::2] = [marks.before + token for token in tokens]
        if tokens and not pieces[0]:
            pieces[1] = tokens[0] + marks.after
    begun = marks.within if found.may_continue_a_token(stripped) else ""
    ending = marks.within if found.may_begin_a_token(stripped) else ""
    return "".join((before, begun, *pieces, ending, after))


def _unescaped(marked: str, text: str, marks: Marks) -> str:
    """Restores marks that the template's `tojson(ensure_ascii=true)` has escaped."""
    for mark in (marks.before, marks.after, marks.within):
        escaped = json.dumps(mark)[1:-1]
        if escaped in marked and escaped not in text:
            marked = marked.replace(escaped, mark)
    return marked


def _read(marked: str, marks: Marks, found: Patterns) -> RenderedPrompt:
    """The text without its marks, and the spans of the tokens that they mark."""
    pieces = marks.pattern.split(marked)
    places = list(accumulate(map(len, pieces[:-1])))
    text = "".join(pieces)
    kinds = marks.pattern.findall(marked)
    spans = _spans(text, places, kinds, marks, found)
    return RenderedPrompt(text, plain_spans.packed(spans))


def _spans(
    text: str, places: list[int], kinds: list[str], marks: Marks, found: Patterns
) -> Iterator[tuple[int, int]]:
    """The tokens that begin, end, or have a mark inside. `places`: of the marks, in order."""
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
