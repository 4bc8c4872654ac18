"""A checkpoint's `response_template`, which says how its answers are read, as families of ours.

tokenizer_config.json has it from transformers 5.13 on. Its regular expressions are never run: those
that say no more than marks, white space, and the place of a name or a value are translated, and a
template with any other is refused with the reason.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NoReturn, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from proxy.language.syntax.call_syntax import written_as
from proxy.language.syntax.element_calls import ANY_TYPE, MarkupCalls
from proxy.language.syntax.json_calls import ARGUMENTS, CallObjects
from proxy.language.syntax.marked_calls import STRING, Gemma4Parser, NamedCalls
from proxy.language.syntax.pythonic import Lfm2Parser
from proxy.language.syntax.reader import PushParser
from proxy.language.syntax.reasoning import TaggedReasoning
from proxy.language.syntax.tool_parser import NAME, ToolParser

MOST_CHARACTERS = 16_384  # of a template
_MOST_IN_PATTERN, _MOST_PARTS, _DEEPEST = 1_024, 32, 4
_MOST_IN_MARK, _MOST_MARKS = 96, 64
_THOUGHTS = ("thinking", "reasoning_content", "reasoning")

# What patterns consist of: text, white space, a named group of classes, the end of the answer.
_TEXT = re.compile(r"(?:(?:\\[^\w\n]|\\[nrt]|[^\\^$.|?*+()\[{])(?![*+?{]))+")
_GAP = re.compile(r"(\\[snrt]|\[(?:\\[snrt]| )+\]|[ \n])[*+?]?\??")
_SLOT = re.compile(r"\(\?P<(\w+)>(?:(?:\\[wSd]|\[(?:\\.|[^\\\]])+\]|\.)[*+]?\??)+\)")
_END = re.compile(r"\$|\\Z")
_ESCAPED = re.compile(r"\\(.)")
_CONTROL = {"n": "\n", "r": "\r", "t": "\t"}
LINE, ANY = "\n", " "  # one line break at most; any white space

_CLEAR = re.compile(r"[<\[]\W*\w")  # what ordinary text seldom has
_PLAIN_TAG = re.compile(r'</?[a-z]+(?: \w+=")?>?')
_OPENING_TAG = re.compile(r"<([\w:]+)[ =]")


Base = TypeVar("Base", bound=PushParser[Any])


class Refused(ValueError):
    """What the template says and this reader cannot do exactly."""


@dataclass(frozen=True, slots=True)
class _Slot:
    """Where a pattern's named group stands."""

    name: str


# LINE, ANY, or text without white space at its ends.
_Form = tuple[str | _Slot, ...]


class _Field(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    open: str | list[str] | None = None
    open_pattern: str | None = None
    close: str | list[str] | None = None
    close_pattern: str | None = None
    content: str = "text"
    content_args: dict[str, Any] = {}
    repeats: bool = False
    join: str | None = None
    optional: bool = True
    transform: Any = None
    transform_each: bool = False

    def opens(self) -> list[_Form]:
        return _forms(self.open, self.open_pattern)

    def closes(self) -> list[_Form]:
        return _forms(self.close, self.close_pattern)


class _Template(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    version: Literal[1] = 1
    defaults: dict[str, Any] = {}
    fields: dict[str, _Field]
    start_anchor: str | list[str] | None = None
    start_anchor_pattern: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """The families that a template describes. text_ends: marks that end the text, where no
    reasoning parser removes them.
    """

    tools: type[ToolParser] | None
    reasoning: type[TaggedReasoning] | None
    text_ends: tuple[str, ...]


def described(text: str) -> Described:
    """
    Args:
        text: the template's JSON.

    Raises:
        Refused: it is no template, or says what this reader cannot do.
    """
    template = _template(text)
    fields = dict(template.fields)
    thoughts = [fields.pop(name) for name in _THOUGHTS if name in fields]
    content, calls = fields.pop("content", _Field()), fields.pop("tool_calls", None)
    if fields or len(thoughts) > 1:
        names = ", ".join(fields) or "reasoning twice"
        raise Refused(f"it has {names[:99]}; answers have reasoning, text and calls")
    _check_text("the text", content)
    opens, ends = _marks(content.opens()), _marks(content.closes())
    anchors = _marks(_forms(template.start_anchor, None)) if opens else ()
    if opens and not thoughts:
        raise Refused("marks begin the text, and no reasoning comes before it")
    reasoning = _reasoning(thoughts[0], opens, (*opens, *ends, *anchors)) if thoughts else None
    tools = None if calls is None else _calls(calls)
    if tools is None and reasoning is None:
        raise Refused("it describes neither reasoning nor calls")
    _check_marks(tools.marks() if tools else ())
    _check_marks(reasoning.marks() if reasoning else ())
    return Described(tools=tools, reasoning=reasoning, text_ends=() if thoughts else ends)


def _template(text: str) -> _Template:
    if len(text) > MOST_CHARACTERS:
        raise Refused(f"it has more than {MOST_CHARACTERS} characters")
    try:
        return _Template.model_validate(json.loads(text))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise Refused(f"{place[:99]}: {first['msg'][:99]}") from None
    except (ValueError, RecursionError):
        raise Refused("it is no JSON") from None


def _check_text(name: str, field: _Field) -> None:
    if (
        field.content != "text"
        or field.transform is not None
        or set(field.content_args) - {"strip"}
    ):
        raise Refused(f"{name} is not plain text")
    if field.join:
        raise Refused(f"{name} has 'join', but its parts are sent one directly behind the other")


def _check_marks(marks: Sequence[str]) -> None:
    if len(marks) > _MOST_MARKS:
        raise Refused(f"it has more than {_MOST_MARKS} marks")
    for one in marks:
        if any(one in other and not other.endswith(one) for other in marks):
            raise Refused(f"the mark {one!r} is a part of another one")


def _reasoning(
    field: _Field, text_begins: Sequence[str], wrappers: Sequence[str]
) -> type[TaggedReasoning]:
    _check_text("the reasoning", field)
    starts, ends = _marks(field.opens()), _marks(field.closes())
    if not starts or not ends:
        raise Refused("the reasoning has no mark at its begin, or none at its end")
    before = text_begins[0] if text_begins else ""
    marks: dict[str, Any] = {
        "starts": starts,
        "ends": ends,
        "closing": f"{ends[0]}{before}",
        "before_answer": before,
        "wrappers": tuple(wrappers),
        "is_anywhere": field.repeats,
    }
    return _family(TaggedReasoning, marks)


def _calls(field: _Field) -> type[ToolParser]:
    """A subclass of the family that reads calls of this kind."""
    opens = field.opens()
    closes = [text for form in field.closes() if (text := _joined(form))]
    names = {part.name for form in opens for part in form if isinstance(part, _Slot)}
    if not opens or len(names) > 1:
        raise Refused("the calls have no mark at their begin, or several names in it")
    if not names:
        return _objects(field, list(map(_joined, opens)), closes)
    name = names.pop()
    if _function(field) != (f"{{{name}}}", "{content}") or field.transform_each:
        raise Refused("a call is not made of the name in its mark and of the content")
    at = [form.index(_Slot(name)) if _Slot(name) in form else 0 for form in opens]
    heads = [_joined(form[:end]) for form, end in zip(opens, at, strict=True)]
    tails = {_written(form[end + 1 :]) for form, end in zip(opens, at, strict=True)}
    texts = [_written(form) for form in (*opens, *field.closes())]
    marks = _NamedMarks.of(heads, tails, closes, LINE if LINE in "".join(texts) else "")
    match field.content:
        case "xml-inline":
            return _elements(marks, field.content_args)
        case "json":
            return _named_objects(marks, field.content_args)
    raise Refused(f"a call's arguments are written as {field.content[:99]!r}")


def _function(field: _Field) -> tuple[str, str] | str:
    """Where a call's name and its arguments come from, or both together."""
    made = field.transform if isinstance(field.transform, dict) else {}
    match made.get("function"):
        case str(text) if made.get("type", "function") == "function":
            return text
        case {"name": str(name), "arguments": str(arguments), **others} if not others:
            return name, arguments
    raise Refused("'transform' makes no call with a name and arguments")


def _objects(field: _Field, opens: list[str], closes: list[str]) -> type[ToolParser]:
    """Calls whose name stands in the content."""
    _check_clear(opens)
    end = closes[0] if closes else ""
    if field.content == "python-call-list":
        if _function(field) != ("{name}", "{arguments}") or LINE in "".join((*opens, end)):
            raise Refused("a call is not made of the list's 'name' and 'arguments'")
        syntax = replace(
            Lfm2Parser.call_syntax, head=f"{opens[0]}[", foot=f"]{end}", trigger=opens[0]
        )
        sections = tuple((one, end) for one in opens)
        marks: dict[str, Any] = {"sections": sections, "starts": tuple(opens)}
        marks |= {"inner_marks": tuple(closes[1:]), "call_syntax": syntax}
        return _family(Lfm2Parser, marks)
    if field.content != "json" or field.content_args:
        raise Refused("the calls are neither JSON nor a list in Python, or JSON of another dialect")
    found, outer = _function(field), "" if field.transform_each else "content."
    if found == "{content}" and not field.transform_each:
        found = "{content.name}", "{content.arguments}"
    name, arguments = (one.removeprefix(f"{{{outer}").removesuffix("}") for one in found[:2])
    if not name.isidentifier() or arguments not in ARGUMENTS:
        raise Refused(f"no call can be made of {str(found)[:99]}")
    starts, leads = zip(*(one.partition(LINE)[::2] for one in opens), strict=True)
    if len(set(leads)) > 1 or LINE in f"{leads[0]}{end}":
        raise Refused("the calls have more marks than one at each end")
    call = f'{{"{name}": "…", "{arguments}": …}}'
    first = f"{starts[0]}{leads[0]}"
    if field.transform_each:
        begin = call.partition("…")[0]
        syntax = written_as(
            call.removeprefix(begin), f"{first}[{begin}…]{end}", separator=f", {begin}"
        )
    else:
        closing = f"\n{end}" if end else ""
        single = not field.repeats
        syntax = written_as(f"{first}\n{call}{closing}", separator="\n", is_single=single)
    marks = {
        "sections": tuple((start, end) for start in starts),
        "inner_marks": tuple(filter(None, (leads[0], *closes[1:]))),
        "lead_in": leads[0],
        "name_key": name,
        "call_syntax": replace(syntax, trigger=starts[0]),
    }
    return _family(CallObjects, marks)


def _family(base: type[Base], marks: dict[str, Any]) -> type[Base]:
    found: type[Base] = type(f"Template{base.__name__}", (base,), marks)
    return found


def _check_clear(opens: Sequence[str]) -> None:
    for one in opens:
        if not _CLEAR.search(one):
            raise Refused(f"the mark {one[:99]!r} that begins calls may stand in ordinary text")


@dataclass(frozen=True, slots=True, kw_only=True)
class _NamedMarks:
    """section? begin name name_end arguments end section_end?

    tail: the end of a name with the white space around it. is_own: each call has a section. gap:
    what guides write where white space may stand.
    """

    section: str
    begin: str
    tail: str
    end: str
    section_end: str
    spare_ends: tuple[str, ...]
    is_own: bool
    gap: str

    @classmethod
    def of(cls, heads: list[str], tails: set[str], closes: list[str], gap: str) -> _NamedMarks:
        heads = [one.replace("><", f">{LINE}<") for one in heads]
        closes = [one.replace("><", f">{LINE}<") for one in closes]
        head = min((one for one in heads if heads[0].endswith(one)), key=len)
        *outer, begin = head.split(LINE)
        sections = {one.removesuffix(head).strip() for one in heads if one != head} | {*outer}
        close = min((one for one in closes if closes[0].startswith(one)), key=len, default="")
        end, *after = close.split(LINE)
        longer = {one for one in closes if close and one != close and one.startswith(close)}
        ends = {one.removeprefix(close).strip() for one in longer} | {*after}
        if outer and end and not ends:  # the call's own end is not described
            tag = _OPENING_TAG.match(begin)
            end, ends = (f"</{tag[1]}>" if tag else ""), {end}
        are_alike = all(one.endswith(head) for one in heads) and len(tails) == 1
        found = cls(
            section="".join(sections),
            begin=begin,
            tail=tails.pop(),
            end=end,
            section_end="".join(ends),
            spare_ends=tuple(one for one in closes if one != close and one not in longer),
            is_own=bool(outer),
            gap=gap,
        )
        if not are_alike or len(sections) > 1 or len(ends) > 1 or LINE in found.name_end:
            raise Refused("the calls have more marks than a section's and their own")
        if outer and not end:
            raise Refused("the calls have no mark at their end, only their section has")
        if found.name_end and NAME.fullmatch(found.name_end[0]):
            raise Refused("a call's name ends with a word")
        _check_clear((found.section or begin, begin) if len(begin) > 2 else ("",))
        return found

    @property
    def name_end(self) -> str:
        return self.tail.strip(LINE)

    @property
    def sections(self) -> tuple[tuple[str, str], ...]:
        return ((self.section, self.section_end),) if self.section else ()

    @property
    def section_form(self) -> str:
        if not self.section:
            return "…"
        own = self.gap if self.is_own else ""
        return f"{self.section}{self.gap}…{own}{self.section_end}"

    def call_form(self, tail: str, gap: str) -> str:
        after = self.gap if self.section and not self.is_own else ""
        return f"{self.begin}…{tail}…{gap}{self.end}{after}"


def _named_objects(marks: _NamedMarks, dialect: dict[str, Any]) -> type[ToolParser]:
    """Calls with the name in their mark, and arguments in JSON or in Gemma's dialect of it."""
    written = written_as(marks.call_form(marks.tail, marks.gap), marks.section_form)
    found: dict[str, Any] = {
        "sections": marks.sections,
        "call_begin": marks.begin,
        "call_end": marks.end,
        "inner_marks": tuple(filter(None, (marks.end, *marks.spare_ends))),
        "call_syntax": replace(written, separator=marks.gap if not marks.section else ""),
    }
    if dialect:
        match dialect:
            case {"unquoted_keys": True, "string_delims": [[str(begin), str(end)]], **others} if (
                begin == end and begin[:1] == "<" and not others and not marks.name_end
            ):
                found |= {"quote": begin, "inner_marks": (begin, *found["inner_marks"])}
                return _family(Gemma4Parser, found)
        raise Refused("a call's arguments are JSON of an unknown dialect")
    inner = tuple(filter(None, (marks.name_end, *found["inner_marks"])))
    found |= {"name_end": marks.name_end, "inner_marks": inner}
    return _family(NamedCalls, found)


def _elements(marks: _NamedMarks, args: dict[str, Any]) -> type[ToolParser]:
    """Calls with the name in their mark, and arguments in elements."""
    form, *others = _Pattern(str(args.get("tag_pattern", ""))).forms()
    slots = [at for at, part in enumerate(form) if isinstance(part, _Slot)]
    unknown = set(args) - {"tag_pattern", "value_parser"}
    if others or unknown or [form[at] for at in slots] != [_Slot("key"), _Slot("value")]:
        raise Refused("'tag_pattern' is not marks around a key and a value")
    key, value = slots
    key_begin, end = _joined(form[:key]), _joined(form[value + 1 :])
    between = _joined(form[key + 1 : value]).replace(LINE, "")
    gap, gap_after = form[value - 1], form[value + 1] if end else ""
    gaps = [one if one in (LINE, ANY) else "" for one in (gap, gap_after)]
    tags = (key_begin, end, marks.end)
    is_shaped = all(one[:1] == "<" and LINE not in one for one in tags)
    if gaps[0] != gaps[1] or not is_shaped or ">" not in between or between[0] not in '<>"':
        raise Refused("the marks of 'tag_pattern' are not like tags")
    types, strips = _value_types(args.get("value_parser"))
    found: dict[str, Any] = {
        "section_form": marks.section_form,
        "has_own_section": marks.is_own,
        "call_form": marks.call_form(f"{marks.name_end}{marks.gap}", marks.gap),
        "element_form": f"{key_begin}…{between}…{end}",
        "has_lines": bool(gaps[0]),
        "strips_values": strips or gaps[0] == ANY,
        "unlisted_types": types,
    }
    parser = _family(MarkupCalls, found)
    parser.plain_marks = tuple(one for one in parser.markup.written if _PLAIN_TAG.fullmatch(one))
    parser.inner_marks += marks.spare_ends
    return parser


def _value_types(parser: Any) -> tuple[frozenset[str], bool]:
    """The types of a value that the tool's schema does not list, and whether the white space around
    it is dropped.
    """
    match parser:
        case None:
            return STRING, False
        case {"name": "text", **others} if others in ({}, {"args": {"strip": True}}):
            return STRING, True
        case {"name": "json", **others} if others in ({}, {"args": {"allow_non_json": True}}):
            return ANY_TYPE, False
    raise Refused("'value_parser' is of an unknown kind")


def _forms(given: str | list[str] | None, pattern: str | None) -> list[_Form]:
    if pattern is None:
        return [_literal(one) for one in ([given] if isinstance(given, str) else given or [])]
    if given is not None:
        raise Refused("a mark is given as text and as a pattern")
    return _Pattern(pattern).forms()


def _literal(text: str) -> _Form:
    """The text with gaps for the white space at its ends. Raises Refused."""
    if len(text) > _MOST_IN_MARK or "…" in text:  # which stands for what is between marks
        raise Refused(f"the mark {text[:30]!r} is too long or has {'…'!r}")
    core = text.strip()
    if not core:
        return ((LINE if text == LINE else ANY),) if text else ()
    before, _, after = text.partition(core)
    return (*_literal(before), core, *_literal(after))


def _written(form: _Form) -> str:
    """The marks of a form with a line break for each gap."""
    text = "".join(LINE if one in (LINE, ANY) else one for one in form if isinstance(one, str))
    return re.sub(r"\n+", LINE, text)


def _joined(form: _Form) -> str:
    """The marks of a form with a line break for each gap inside."""
    return _written(form).strip(LINE)


def _marks(forms: list[_Form]) -> tuple[str, ...]:
    """Marks that are text alone, without the white space around them."""
    found = tuple(dict.fromkeys(filter(None, map(_joined, forms))))
    if any(isinstance(part, _Slot) for form in forms for part in form) or LINE in "".join(found):
        raise Refused("a mark around reasoning or text is more than text")
    return found


class _Pattern:
    """Translates a regular expression into the forms that it matches. Never runs it."""

    def __init__(self, text: str) -> None:
        self._text, self._at = text, 0

    def forms(self) -> list[_Form]:
        found = self._alternatives(0)
        if self._at < len(self._text):
            self._refuse()
        return found

    def _refuse(self) -> NoReturn:
        rest = self._text[self._at : self._at + 30]
        raise Refused(f"the pattern {self._text[:60]!r} is more than marks at {rest!r}")

    def _alternatives(self, depth: int) -> list[_Form]:
        if depth > _DEEPEST or len(self._text) > _MOST_IN_PATTERN:
            self._refuse()
        found = self._sequence(depth)
        while self._accept("|"):
            found += self._sequence(depth)
        return found

    def _sequence(self, depth: int) -> list[_Form]:
        forms: list[_Form] = [()]
        while self._at < len(self._text) and self._text[self._at] not in "|)":
            item = self._item(depth)
            if len(item) * len(forms) > _MOST_MARKS or len(forms[-1]) > _MOST_PARTS:
                self._refuse()
            forms = [(*before, *one) for one in item for before in forms]
        return forms

    def _item(self, depth: int) -> list[_Form]:
        if self._accept("(?:"):
            inner = self._alternatives(depth + 1)
            if not self._accept(")"):
                self._refuse()
            return [(), *inner] if self._accept("?") else inner
        if found := self._match(_SLOT):
            return [(_Slot(found[1]),)]
        if self._match(_END):
            return [()]
        if found := self._match(_TEXT):
            text = _ESCAPED.sub(lambda one: _CONTROL.get(one[1], one[1]), found[0])
            return [_literal(text)]
        if found := self._match(_GAP):
            is_line = found[1] in (r"\n", LINE) and found[0][-1:] not in "*+"
            return [(LINE if is_line else ANY,)]
        self._refuse()

    def _accept(self, text: str) -> bool:
        is_next = self._text.startswith(text, self._at)
        self._at += len(text) * is_next
        return is_next

    def _match(self, kind: re.Pattern[str]) -> re.Match[str] | None:
        found = kind.match(self._text, self._at)
        if found:
            self._at = found.end()
        return found
