"""A checkpoint's `response_template`, which says how its answers are read, as families of ours.

tokenizer_config.json has it from transformers 5.13 on. Its regular expressions are never run: those
that say no more than marks, white space, and the place of a name or a value are translated, and a
template with any other is refused with the reason.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from proxy.language.syntax.call_syntax import written_as
from proxy.language.syntax.element_calls import ANY_TYPE, MarkupCalls
from proxy.language.syntax.json_calls import ARGUMENTS, CallObjects
from proxy.language.syntax.marked_calls import STRING, Gemma4Parser, NamedCalls
from proxy.language.syntax.pythonic import Lfm2Parser
from proxy.language.syntax.reader import PushParser
from proxy.language.syntax.reasoning import TaggedReasoning
from proxy.language.syntax.tool_parser import ToolParser

_MOST_CHARACTERS, _MOST_IN_PATTERN, _MOST_IN_MARK = 16_384, 512, 64
_MOST_MARKS, _MOST_FORMS, _DEEPEST = 32, 16, 4

# What patterns consist of. A slot is a named group of classes of characters.
_PART = re.compile(
    r"(?P<or>\|)|(?P<group>\(\?:)|(?P<end>(?:\$|\\Z)(?=[|)]|\Z))"
    r"|(?P<slot>\(\?P<(?P<name>\w+)>(?:(?:\\[wSd]|\[(?:\\.|[^\\\]])+\]|\.)[*+]?\??)+\))"
    r"|(?P<text>(?:(?:\\[^\w\n]|\\[nrt]|[^\\^$.|?*+()\[{])(?![*+?{]))+)"
    r"|(?P<gap>(?P<space>\\[snrt]|\[(?:\\[snrt]| )+\]|[ \n])[*+?]?\??)"
)
_ESCAPED, _CONTROL = re.compile(r"\\(.)"), {"n": "\n", "r": "\r", "t": "\t"}
# In a form, which is what a pattern matches: a line break that may stand there, any white space,
# and the brackets of a slot's name.
_LINE, _ANY, _SLOT = "\n", "\v", "\0"
_GAPS = re.compile(f"[{_LINE}{_ANY}]+")
_ELEMENT = re.compile(r"([^\0]+)\0key\0([^\0]+)\0value\0([^\0]+)")

_CLEAR = re.compile(r"[<\[]\W*\w")  # what ordinary text seldom has
_PLAIN_TAG = re.compile(r'</?[a-z]+(?: \w+=")?>?')
_OPENING_TAG = re.compile(r"<([\w:]+)[ =]")

Base = TypeVar("Base", bound=PushParser[Any])
Args = dict[str, Any]


class Refused(KeyError):
    """The template says what this reader cannot do exactly; args[0] is what."""


class _Field(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    open: str | list[str] | None = None
    open_pattern: str | None = None
    close: str | list[str] | None = None
    close_pattern: str | None = None
    content: str = "text"
    content_args: Args = {}
    repeats: bool = False
    join: str | None = None
    optional: bool = True
    transform: Any = None
    transform_each: bool = False

    @property
    def ends(self) -> tuple[list[str], list[str]]:
        """The forms of the marks at its begin and at its end."""
        return _forms(self.open, self.open_pattern), _forms(self.close, self.close_pattern)


class _Template(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    version: Literal[1] = 1
    defaults: dict[str, Any] = {}
    fields: dict[str, _Field]
    start_anchor: str | list[str] | None = None
    start_anchor_pattern: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """The families of a template. unread: marks that no parser reads: must be special tokens."""

    tools: type[ToolParser] | None
    reasoning: type[TaggedReasoning] | None
    unread: tuple[str, ...]


def described(text: str) -> Described:
    """The families of the template with this JSON. Raises Refused."""
    template = _template(text)
    fields = dict(template.fields)
    names = ("thinking", "reasoning_content", "reasoning")
    thoughts = [fields.pop(name) for name in names if name in fields]
    content, calls = fields.pop("content", _Field()), fields.pop("tool_calls", None)
    if fields or len(thoughts) > 1 or not (thoughts or calls):
        found = ", ".join(template.fields)
        raise Refused(f"its fields are {found[:99]}, not one of reasoning, content, and tool_calls")
    begins, ends = _text_marks("content", content)
    if begins and not thoughts:
        raise Refused("marks begin the text, and no reasoning comes before it")
    anchors = _marks(_forms(template.start_anchor, None)) if begins else ()
    reasoning = _reasoning(thoughts[0], begins, (*begins, *ends, *anchors)) if thoughts else None
    tools, unread = (None, ()) if calls is None else _calls(calls)
    starts = tools.starts if tools else ()
    for one in starts:
        if not _CLEAR.search(one) or len(one) < 3:
            raise Refused(f"the mark {one!r}, which begins calls, may stand in ordinary text")
    _check_marks(tools.marks() if tools else ())
    _check_marks((*starts, *(reasoning.marks() if reasoning else ())))
    return Described(
        tools=tools, reasoning=reasoning, unread=unread if thoughts else (*ends, *unread)
    )


def _template(text: str) -> _Template:
    if len(text) > _MOST_CHARACTERS:
        raise Refused(f"it has more than {_MOST_CHARACTERS} characters")
    try:
        return _Template.model_validate(json.loads(text))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise Refused(f"{place[:99]}: {first['msg'][:99]}") from None
    except (ValueError, RecursionError):
        raise Refused("it is no JSON") from None


def _text_marks(name: str, field: _Field) -> tuple[tuple[str, ...], tuple[str, ...]]:
    is_text = field.content == "text" and not set(field.content_args) - {"strip"}
    if not is_text or field.transform is not None or field.join:
        raise Refused(f"{name} is not plain text, or has a joint")
    opens, closes = field.ends
    return _marks(opens), _marks(closes)


def _marks(forms: Iterable[str]) -> tuple[str, ...]:
    """Marks that are text alone, without the white space around them."""
    found = tuple(dict.fromkeys(filter(None, map(_joined, forms))))
    if any(_LINE in one or _SLOT in one for one in found):
        raise Refused("a mark around reasoning or text is more than text")
    return found


def _check_marks(marks: Sequence[str]) -> None:
    if len(marks) > _MOST_MARKS:
        raise Refused(f"it has more than {_MOST_MARKS} marks")
    for one in marks:
        if any(one in other and not other.endswith(one) for other in marks):
            raise Refused(f"the mark {one!r} is a part of another one")


def _family(base: type[Base], **marks: Any) -> type[Base]:
    found: type[Base] = type(f"Template{base.__name__}", (base,), marks)
    return found


def _reasoning(
    field: _Field, text_begins: tuple[str, ...], wrappers: tuple[str, ...]
) -> type[TaggedReasoning]:
    starts, ends = _text_marks("the reasoning", field)
    if not starts or not ends:
        raise Refused("the reasoning has no mark at its begin, or none at its end")
    before = "".join(text_begins[:1])
    marks: Args = {"starts": starts, "ends": ends, "wrappers": wrappers}
    marks |= {"before_answer": before, "closing": f"{ends[0]}{before}"}
    return _family(TaggedReasoning, is_anywhere=field.repeats, **marks)


def _calls(field: _Field) -> tuple[type[ToolParser], tuple[str, ...]]:
    """A subclass of the family that reads such calls, and ends of calls that it does not read."""
    opens, after = field.ends
    closes = list(filter(None, map(_tags, after)))
    close = min((one for one in closes if closes[0].startswith(one)), key=len, default="")
    slots = {name for one in opens for name in one.split(_SLOT)[1::2]}
    if not opens or len(slots) > 1 or _SLOT in "".join(closes):
        raise Refused("the calls have no mark at their begin, or several names in it")
    function = field.transform.get("function") if isinstance(field.transform, dict) else None
    source = (function, "") if isinstance(function, str) else ("", "")
    if isinstance(function, dict) and set(function) == {"name", "arguments"}:
        source = str(function["name"]), str(function["arguments"])
    if not slots:
        found = _objects(field, source, list(map(_joined, opens)), close)
    elif source != (f"{{{(name := slots.pop())}}}", "{content}") or field.transform_each:
        raise Refused("a call is not made of the name in its mark and of the content")
    else:
        parts = [one.partition(f"{_SLOT}{name}{_SLOT}") for one in opens]
        tails = {_GAPS.sub(_LINE, tail) for _, _, tail in parts}
        kinds = {"xml-inline": _elements, "json": _named_objects}
        if field.content not in kinds or len(tails) > 1:
            raise Refused(f"a call's arguments are {field.content[:99]!r}, or its marks differ")
        gap = _LINE if _GAPS.search("".join((*opens, *after))) else ""
        heads = [_tags(head) for head, _, _ in parts]
        longer = [one for one in closes if one.startswith(close) and one != close]
        forms = _named_forms(heads, tails.pop(), close, longer, gap)
        is_own = _LINE in min(heads, key=len)
        found = kinds[field.content](*forms, field.content_args, is_own=is_own)
    is_single = not (field.repeats or field.transform_each)
    found.call_syntax = found.call_syntax and replace(found.call_syntax, is_single=is_single)
    return found, tuple(one for one in closes if not one.startswith(close))


def _objects(
    field: _Field, source: tuple[str, str], opens: list[str], end: str
) -> type[ToolParser]:
    """Calls whose name stands in the content. source: where transform finds name and arguments."""
    if _LINE in "".join((*opens, end)):
        raise Refused("the calls have more marks than one at each end")
    is_list, sections = field.transform_each, tuple((start, end) for start in opens)
    if field.content == "python-call-list" and is_list and source == ("{name}", "{arguments}"):
        head, foot = f"{opens[0]}[", f"]{end}"
        written = replace(Lfm2Parser.call_syntax, head=head, foot=foot, trigger=opens[0])
        return _family(Lfm2Parser, starts=tuple(opens), call_syntax=written, sections=sections)
    if source == ("{content}", "") and not is_list:
        source = "{content.name}", "{content.arguments}"
    prefix = "{" if is_list else "{content."
    name, arguments = (one.removeprefix(prefix).removesuffix("}") for one in source)
    is_json = field.content == "json" and not field.content_args
    if not is_json or not name.isidentifier() or arguments not in ARGUMENTS:
        raise Refused("the calls are not JSON objects with a name and arguments")
    begin, rest = f'{{"{name}": "', f'…", "{arguments}": …}}'
    if is_list:
        written = written_as(rest, f"{opens[0]}[{begin}…]{end}", separator=f", {begin}")
    else:
        closing = f"\n{end}" if end else ""
        written = written_as(f"{opens[0]}\n{begin}{rest}{closing}", separator="\n")
    written = replace(written, trigger=opens[0])
    return _family(CallObjects, name_key=name, call_syntax=written, sections=sections)


def _named_forms(
    heads: list[str], tail: str, close: str, longer: list[str], gap: str
) -> tuple[str, str]:
    """How a section and a call are written, as `written_as` takes it.

    heads, tail: of the calls' marks, before and behind the name. close, longer: marks at the end.
    The shortest head and end are the call's, and what others have in addition is the section's.
    gap: what guides write where white space may stand.
    """
    head = min((one for one in heads if heads[0].endswith(one)), key=len)
    *outer, begin = head.split(_LINE)
    end, *after = close.split(_LINE)
    starts = {*outer, *(one.removesuffix(head).strip() for one in heads if one != head)}
    ends = {*after, *(one.removeprefix(close).strip() for one in longer)}
    if outer and end and not ends:  # the call's own end is not described
        tag = _OPENING_TAG.match(begin)
        end, ends = (f"</{tag[1]}>" if tag else ""), {end}
    is_shaped = all(one.endswith(head) for one in heads) and max(len(starts), len(ends)) < 2
    if not is_shaped or (outer and not end) or re.match(r"[\w.\-/]|.*\n", tail.strip()):
        raise Refused("the calls have more or fewer marks than a section's and their own")
    between, behind = (gap, "") if outer else ("", gap if starts else "")
    section = f"{gap}…{between}".join(("".join(starts), "".join(ends))) if starts else "…"
    return section, f"{begin}…{tail.rstrip()}{gap}…{gap}{end}{behind}"


def _named_objects(section: str, call: str, args: Args, *, is_own: bool) -> type[ToolParser]:
    """Arguments in JSON, or in Gemma's dialect of it. is_own: each call has a section."""
    written = written_as(call, section)
    begin, name_end, end = (one.strip() for one in (written.begin, written.middle, written.end))
    inner = tuple(filter(None, (end, name_end)))
    found: Args = {
        "sections": ((written.head.strip(), written.foot.strip()),) if written.head else (),
        "call_begin": begin,
        "call_end": end,
        "call_syntax": written_as(section.replace("…", call)) if is_own else written,
    }
    match args:
        case {"unquoted_keys": True, "string_delims": [[str(quote), str(other)]], **more} if (
            quote == other and quote[:1] == "<" and not more and not name_end
        ):
            return _family(Gemma4Parser, quote=quote, inner_marks=(quote, *inner), **found)
        case {**more} if more:
            raise Refused("a call's arguments are JSON of an unknown dialect")
    return _family(NamedCalls, name_end=name_end, inner_marks=inner, **found)


def _elements(section: str, call: str, args: Args, *, is_own: bool) -> type[ToolParser]:
    """Arguments in elements."""
    forms = _forms(None, str(args.get("tag_pattern", "")))
    shape = _ELEMENT.fullmatch(forms[0])
    if shape is None or len(forms) > 1 or set(args) - {"tag_pattern", "value_parser"}:
        raise Refused("'tag_pattern' is not marks around a key and a value")
    key_begin, end, between = _joined(shape[1]), _joined(shape[3]), _GAPS.sub("", shape[2])
    gap, gap_behind = (one if one in (_LINE, _ANY) else "" for one in (shape[2][-1], shape[3][0]))
    tags = (key_begin, end, call.split("…")[2].strip())
    are_tags = all(one[:1] == "<" and _LINE not in one for one in tags)
    if gap != gap_behind or not are_tags or ">" not in between or between[0] not in '<>"':
        raise Refused("the marks of 'tag_pattern' are not like tags")
    match args.get("value_parser"):
        case None:
            types, strips = STRING, False
        case {"name": "text", **more} if more in ({}, {"args": {"strip": True}}):
            types, strips = STRING, True
        case {"name": "json", **more} if more in ({}, {"args": {"allow_non_json": True}}):
            types, strips = ANY_TYPE, False
        case _:
            raise Refused("'value_parser' is of an unknown kind")
    parser = _family(
        MarkupCalls,
        section_form=section,
        has_own_section=is_own,
        call_form=call,
        element_form=f"{key_begin}…{between}…{end}",
        has_lines=bool(gap),
        strips_values=strips or gap == _ANY,
        unlisted_types=types,
    )
    parser.plain_marks = tuple(one for one in parser.markup.written if _PLAIN_TAG.fullmatch(one))
    return parser


def _forms(given: str | list[str] | None, pattern: str | None) -> list[str]:
    """What a mark may be. A pattern is translated, never run."""
    if pattern is None:
        return list(map(_literal, [given] if isinstance(given, str) else given or []))
    if given is not None or len(pattern) > _MOST_IN_PATTERN:
        raise Refused("a mark is given twice, or its pattern is too long")
    found, end = _alternatives(pattern, 0, 0)
    if end != len(pattern):
        raise Refused(f"the pattern {pattern[:60]!r} has a bracket too many")
    return found


def _alternatives(pattern: str, at: int, depth: int) -> tuple[list[str], int]:
    """The forms from `at` to the end of a group or of the pattern, and where that is."""
    found: list[str] = []
    forms = [""]
    while at < len(pattern) and pattern[at] != ")":
        part = _PART.match(pattern, at)
        if part is None or depth > _DEEPEST or len(found) + len(forms) > _MOST_FORMS:
            rest = pattern[at : at + 30]
            raise Refused(f"the pattern {pattern[:60]!r} is more than marks, at {rest!r}")
        at, each = part.end(), [""]
        match part.lastgroup:
            case "or":
                found, forms = found + forms, [""]
            case "group":
                each, at = _alternatives(pattern, at, depth + 1)
                at += 1
                if pattern.startswith("?", at):
                    each, at = ["", *each], at + 1
            case "slot":
                each = [f"{_SLOT}{part['name']}{_SLOT}"]
            case "text":
                each = [_literal(_ESCAPED.sub(lambda m: _CONTROL.get(m[1], m[1]), part[0]))]
            case "gap":
                is_line = part["space"] in (r"\n", "\n") and part[0][-1] not in "*+"
                each = [_LINE if is_line else _ANY]
        forms = [f"{before}{one}" for one in each for before in forms]
    return found + forms, at


def _literal(text: str) -> str:
    """The form of a text. Raises Refused."""
    core = text.strip()
    is_printable = core.replace("\n", "").isprintable() and "…" not in core  # which are our slots
    if len(text) > _MOST_IN_MARK or not is_printable:
        raise Refused(f"the mark {text[:30]!a} is too long or has an unusual character")
    begin, _, end = text.partition(core) if core else (text, "", "")
    return core.join((_LINE if one == "\n" else _ANY) if one else "" for one in (begin, end))


def _joined(form: str) -> str:
    """The marks of a form, with a line break for each gap between them."""
    return _GAPS.sub(_LINE, form).strip(_LINE)


def _tags(form: str) -> str:
    """As `_joined`, with a gap between tags, too."""
    return _joined(form).replace("><", f">{_LINE}<")
