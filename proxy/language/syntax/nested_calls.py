"""The families whose elements say their types or hold elements: DeepSeek V3.2, Kimi K3, MiniMax M3
and Cohere's XML.

Strings stream as they are written. Sources: xgrammar 0.2.8 (`builtin_structural_tag`), and the
parsers of SGLang (0396a052, 00ca197b), vLLM (2d956748) and cohere-ai/melody (08f8b2dc).
"""

from __future__ import annotations

import json
import re
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar
from xml.sax.saxutils import escape, unescape

from proxy.language.structured.escaped_grammar import IN_MARKUP
from proxy.language.structured.schema import followed, unfolding
from proxy.language.structured.structural_tags import (
    Format,
    const_string,
    either,
    regex,
    repeat,
    tag,
)
from proxy.language.syntax.bare_values import BareValue, ValueMarks
from proxy.language.syntax.call_syntax import (
    INPUT,
    CallSyntax,
    InputSyntax,
    argument_list,
    has_independent_arguments,
    with_definitions,
    written_as,
)
from proxy.language.syntax.element_calls import (
    ANY_TYPE,
    has_safe_patterns,
    is_plain_text,
    json_without,
    text_format,
    typed,
    types_of,
    values_of,
)
from proxy.language.syntax.literal import Broken, CutOff, escaped, literal_in
from proxy.language.syntax.reader import Delimiters, PassOn, Steps
from proxy.language.syntax.reasoning import COHERE_WRAPPERS
from proxy.language.syntax.tool_parser import NAME, SectionCalls

_TAG_NAME = re.compile(r"[^<>/\"\s]*")
_WORD = re.compile(r"\w*")
_QUOTED = re.compile(r'[^"]*')
_EMPTY = {"string": '""', "array": "[]", "object": "{}", "null": "null"}
_MAX_DEPTH = 8
_MOST_BRANCHES = 64  # alternatives of a schema that are searched for a child's


@dataclass(frozen=True, slots=True, kw_only=True)
class Element:
    """An element's start. end: the mark that ends it. says: text, json, dict or list, where the
    element says what it holds.
    """

    key: str | None
    end: str
    says: str = ""


@dataclass(slots=True, kw_only=True)
class Container:
    """A list or an object whose elements are being read."""

    end: str
    schema: Any
    is_list: bool = False
    count: int = 0

    @property
    def closing(self) -> str:
        return "]" if self.is_list else "}"


class NestedCalls(SectionCalls):
    """Containers are on a stack of our own, so that depth costs memory only."""

    call_end: ClassVar[str]
    element_begin: ClassVar[str]
    key_head: ClassVar[str] = ""  # what stands between it and the key, and behind the key
    key_tail: ClassVar[str] = ">"
    # What every value ends with, also one that turns out to hold elements; "" for its own end.
    value_stop: ClassVar[str] = ""
    any_end: ClassVar[tuple[str, str]] = ("", "")  # as ValueMarks'
    # Names of an element that holds all arguments, unless the tool has an argument of that name.
    wrappers: ClassVar[tuple[str, ...]] = ()
    # The types of a value that neither says its type nor is listed in the schema.
    unlisted_types: ClassVar[frozenset[str]] = ANY_TYPE

    @abstractmethod
    def _call_head(self) -> Steps[str]:
        """Reads the rest of the call's start, and returns the name."""

    @abstractmethod
    def _element_head(self) -> Steps[Element]:
        """Reads the rest of an element's start."""

    @cached_property
    def _known(self) -> dict[tuple[int, str | None], Any]:
        """A schema's children by their keys, and its types: slow to find in a large schema."""
        return {}

    def _call(self) -> Steps[None]:
        self._name = yield from self._call_head()
        if not NAME.fullmatch(self._name):
            raise Broken
        yield from self._reader.space()
        if (yield from self._has_bare_object()):
            yield from self._json_arguments()
            yield from self._end(self.call_end)
            return
        containers = [Container(end=self.call_end, schema=self._tools.get(self._name))]
        try:
            while containers:
                yield from self._step(containers)
        except (Broken, CutOff) as error:
            closing = "".join(one.closing for one in reversed(containers[1:]))
            if isinstance(error, Broken) and self._is_open:
                self._emit_arguments(closing)
            if isinstance(error, CutOff) and error.closing is not None:
                error.closing = closing
            raise

    def _step(self, containers: list[Container]) -> Steps[None]:
        """Reads the end of the innermost container, or an element up to its end or its first
        element.
        """
        inner = containers[-1]
        yield from self._reader.space()
        if (yield from self._ends(inner, is_call=len(containers) == 1)):
            containers.pop()
            if not containers:
                self._close_arguments()
                return
            self._emit_arguments(inner.closing)
        else:
            if self._reader.may_end_in(inner.end):
                raise CutOff("")
            if len(containers) == 1 and (yield from self._is_unopened(inner)):
                self._end_argument()
                return
            yield from self._expect(self.element_begin)
            opened = yield from self._element(inner, is_argument=len(containers) == 1)
            if opened is not None:
                containers.append(opened)
        self._end_argument()

    def _is_unopened(self, inner: Container) -> Steps[bool]:
        """Reads an argument whose opening tag is missing, if its closing tag says its name."""
        yield from ()
        return False

    def _ends(self, inner: Container, *, is_call: bool) -> Steps[bool]:
        """The section's end also ends a call, and is not taken."""
        if (yield from self._reader.accept(inner.end)):
            return True
        for _, end in self.sections if is_call else ():
            if (yield from self._reader.look(len(end))) == end:
                return True
        return False

    def _element(self, inner: Container, *, is_argument: bool) -> Steps[Container | None]:
        """Returns the container that the element opens, if it does."""
        element = yield from self._element_head()
        if element.key is None and not inner.is_list:
            raise Broken
        schema = self._child(inner, element.key or "")
        types = self._types(schema, element.says)
        is_wrapper = is_argument and schema is None and element.key in self.wrappers

        def write(value: str) -> None:
            if is_argument:
                self._begin_argument(element.key or "")
            else:
                comma = ", " if inner.count else ""
                key = json.dumps(element.key, ensure_ascii=False)
                self._emit_arguments(comma if inner.is_list else f"{comma}{key}: ")
            inner.count += 1
            self._reader.recorded()
            self._emit_arguments(value)

        if element.says in ("dict", "list"):
            is_list = element.says == "list"
            write("[" if is_list else "{")
            return Container(end=element.end, schema=schema, is_list=is_list)
        if types == {"string"} and element.says != "json" and not is_wrapper:
            write('"')
            value = self._bare_value(element.end, inner)
            lost = yield from value.read(lambda text: self._emit_arguments(escaped(text)))
            self._emit_arguments('"')
            if lost:
                raise Broken(lost)
            return None
        parts: list[str] = []
        lost, is_whole = "", False
        if self.value_stop:
            yield from self._until(self.value_stop, parts.append)
            is_whole = yield from self._reader.accept(element.end)
        if not is_whole and (not self.value_stop or (is_argument and "".join(parts).strip())):
            lost = yield from self._bare_value(element.end, inner).read(parts.append)
            is_whole = True
        text = "".join(parts)
        if is_whole:
            if not (is_wrapper and self._has_joined(text)):
                write(_scalar(text, types, is_json=element.says == "json"))
            if lost:
                raise Broken(lost)
            return None
        if self._reader.may_end_in(element.end):
            raise CutOff
        if text.strip():
            raise Broken
        is_list = yield from self._holds_items(types)
        write("[" if is_list else "{")
        return Container(end=element.end, schema=schema, is_list=is_list)

    def _has_joined(self, text: str) -> bool:
        """Whether the text is an object; its entries become arguments, if the tool lists any."""
        listed = self._tools.get(self._name, {}).get("properties")
        found = literal_in(text) if listed else None
        if found is None or not found.startswith("{"):
            return False
        if entries := found[1:-1].strip():
            self._start_call()
            self._emit_arguments(f"{', ' if self._argument_count else '{'}{entries}")
            self._argument_count += 1
        return True

    def _bare_value(self, end: str, inner: Container) -> BareValue:
        """A value in `inner`. An element in another one ends with its own closing mark only."""
        sections = dict(self.sections)
        starts = (*sections, self.call_begin)
        is_argument = inner.end == self.call_end
        ends = ((self.call_end, (*sections.values(), *starts)),)
        marks = ValueMarks(
            end=end,
            key_begin=f"{self.element_begin}{self.key_head if is_argument else ''}",
            key_end=self.key_tail,
            after=(inner.end, *sections.values()),
            call_ends=(*ends, *((one, starts) for one in sections.values())) if is_argument else (),
            begins=starts,
            any_end=self.any_end if is_argument else ("", ""),
        )
        return BareValue(self._reader, marks, lambda key: is_argument and self._is_next_key(key))

    def _until(self, mark: str, pass_on: PassOn) -> Steps[None]:
        if not (yield from self._reader.until(Delimiters([mark]), pass_on, leaves_partial=True)):
            raise CutOff

    def _holds_items(self, types: frozenset[str]) -> Steps[bool]:
        """Whether a value that holds elements is a list."""
        possible = types & {"array", "object"}
        if len(possible) == 1:
            return "array" in possible
        item = f"{self.element_begin}item>"
        return (yield from self._reader.look(len(item))) == item

    def _child(self, inner: Container, key: str) -> Any:
        """The schema of an element; None if none is listed."""
        if inner.schema is None:
            return None
        at = (id(inner.schema), "" if inner.is_list else key)
        if at not in self._known:
            root = self._tools.get(self._name)
            found = (_listed(one, inner, key) for one in _branches(inner.schema, root))
            self._known[at] = next((one for one in found if one is not None), None)
        return self._known[at]

    def _types(self, schema: Any, says: str) -> frozenset[str]:
        if schema is None:
            types = ANY_TYPE if says else self.unlisted_types
        else:
            at = (id(schema), None)
            if at not in self._known:
                self._known[at] = types_of(schema, self._tools.get(self._name))
            types = self._known[at]
        if says == "text":
            return types & {"string"} or types
        return types - {"string"} or types if says else types


def _scalar(text: str, types: frozenset[str], *, is_json: bool) -> str:
    if not text:
        return next((_EMPTY[one] for one in _EMPTY if one in types), '""')
    found = literal_in(text) if is_json and "string" in types else None
    if found is not None and found.startswith('"'):
        return found
    return typed(text, types)


def _branches(schema: Any, root: Any) -> Iterator[Mapping[str, Any]]:
    """The schema and its alternatives, but no more than are looked at in reasonable time."""
    waiting = [schema]
    for _ in range(_MOST_BRANCHES):
        if not waiting:
            return
        one = followed(waiting.pop(0), root)
        yield one
        for keyword in ("anyOf", "oneOf", "allOf"):
            if isinstance(one.get(keyword), list):
                waiting += one[keyword][:_MOST_BRANCHES]


def _listed(schema: Mapping[str, Any], inner: Container, key: str) -> Any:
    if inner.is_list:
        return schema.get("items")
    properties, other = schema.get("properties"), schema.get("additionalProperties")
    if isinstance(properties, Mapping) and key in properties:
        return properties[key]
    return other if isinstance(other, Mapping) else None


class AttributeCalls(NestedCalls):
    """Calls and elements whose starts have attributes: names, and what an element holds."""

    start_end: ClassVar[str] = ">"
    name_attribute: ClassVar[str] = "name"  # of a call
    key_attribute: ClassVar[str] = "name"  # of an element
    type_attribute: ClassVar[str] = "type"
    # What elements of each type hold, see Element; `untyped`: those of other types, or of none.
    holds: ClassVar[Mapping[str, str]]
    untyped: ClassVar[str] = "text"
    key_head, key_tail = 'name="', '"'
    element_end: ClassVar[str]

    def _call_head(self) -> Steps[str]:
        attributes = yield from self._attributes()
        return attributes.get(self.name_attribute, "")

    def _element_head(self) -> Steps[Element]:
        attributes = yield from self._attributes()
        kind = attributes.get(self.type_attribute, "")
        return Element(
            key=attributes.get(self.key_attribute),
            end=self.element_end,
            says=self.holds.get(kind, self.untyped),
        )

    def _attributes(self) -> Steps[dict[str, str]]:
        """Attributes, and the end of the start."""
        found: dict[str, str] = {}
        while True:
            yield from self._reader.space()
            if (yield from self._reader.accept(self.start_end)):
                return found
            name = yield from self._reader.word(_WORD)
            yield from self._expect('="', self.start_end)
            value = yield from self._reader.word(_QUOTED)
            yield from self._expect('"')
            found[name] = unescape(value, {"&quot;": '"', "&apos;": "'"})


# (name, or "" for an item of a list; JSON type; whether the value is written as elements) -> start
WriteStart = Callable[[str, str, bool], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ElementSyntax:
    """How guides write an element. stops: what text in it never contains. is_nested: lists and
    objects are elements, where the schema lists what they hold; else JSON.
    """

    start: WriteStart
    end: Callable[[str], str]
    stops: tuple[str, ...]
    is_nested: bool
    says_type: bool = True

    def calls(self, call: str, calls: str) -> CallSyntax:
        """Calls with such elements; as `written_as`."""
        begin, end = self.start(INPUT, "string", False), self.end(INPUT)
        return replace(
            written_as(call, calls),
            arguments=self._arguments,
            input=InputSyntax(begin=begin, end=end, escapes=IN_MARKUP),
            can_hold=can_be_nested,
        )

    def _arguments(self, schema: Any) -> Format:
        is_nested = self.is_nested and not unfolding(schema).is_recursive
        return argument_list(
            schema, lambda name, one: self._element(name, one, is_nested=is_nested), ""
        )

    def _element(self, name: str, schema: Any, *, is_nested: bool) -> Format:
        types = _types(schema)
        if not self.says_type and "string" in types and types - {"string", "null"}:
            # Of bare text a reader could not tell whether it is a string: strings are in quotes.
            quoted = json_without(schema, [*self.stops])
            return tag(self.start(name, "", False), quoted, self.end(name))
        made = []
        for one in variants(schema):
            kind = _type(one)
            inner = self._elements(kind, one) if is_nested else None
            start = self.start(name, kind, inner is not None)
            made.append(tag(start, inner or self._value(kind, one), self.end(name)))
        return made[0] if len(made) == 1 else either(*made)

    def _value(self, kind: str, schema: Any) -> Format:
        if kind == "string":
            return text_format(followed(schema, schema), [*self.stops])
        return json_without(schema, [*self.stops])

    def _elements(self, kind: str, schema: Any) -> Format | None:
        """The elements that a list or an object holds; None for other values."""
        found = with_definitions(followed(schema, schema), schema)
        if kind == "object" and found.get("properties") and can_be_nested(found):
            return argument_list(
                found, lambda name, one: self._element(name, one, is_nested=True), ""
            )
        items = found.get("items")
        is_plain = set(found) <= {"type", "items", "minItems", "maxItems", *_NOTES}
        if kind != "array" or not is_plain or not isinstance(items, Mapping):
            return None
        item = with_definitions(items, found)
        if not _can_be_value(item):
            return None
        element = self._element("", item, is_nested=True)
        return repeat(element, found.get("minItems", 0), found.get("maxItems", -1))


_NOTES = ("title", "description", "default", "$defs", "definitions")


def can_be_nested(schema: Any) -> bool:
    """Whether a guide can hold elements to this schema of a tool's arguments, or of an object."""
    properties = schema.get("properties", {})
    is_safe = has_independent_arguments(schema) and has_safe_patterns(schema)
    return is_safe and all(
        name and _TAG_NAME.fullmatch(name) and _can_be_value(with_definitions(one, schema))
        for name, one in properties.items()
    )


def _can_be_value(schema: Any) -> bool:
    return all(
        len(_types(one)) == 1 and (_type(one) != "string" or is_plain_text(followed(one, one)))
        for one in variants(schema)
    )


def variants(schema: Any, depth: int = 0) -> list[Any]:
    """Schemas of one type each that allow what the schema allows; the schema itself if it allows
    nothing, or is nested too deeply.
    """
    if schema is True:
        schema = {}
    types = _types(schema)
    if len(types) == 1 or depth > _MAX_DEPTH or not isinstance(schema, Mapping):
        return [schema]
    found = followed(schema, schema)
    for keyword in ("anyOf", "oneOf"):
        if isinstance(found.get(keyword), list):
            inner = [with_definitions(one, schema) for one in found[keyword]]
            return [one for each in inner for one in variants(each, depth + 1)]
    if (listed := values_of(found)) is not None:
        kinds = {type(one): one for one in listed}
        return [{"enum": [one for one in listed if type(one) is kind]} for kind in kinds]
    return [with_definitions({**found, "type": one}, schema) for one in sorted(types)]


def _types(schema: Any) -> frozenset[str]:
    types = types_of(schema, schema)
    return types - {"integer"} if "number" in types else types


def _type(schema: Any) -> str:
    return min(_types(schema))


def _bars(mark: str) -> tuple[str, str]:
    """The mark, and as some models write it."""
    return mark, mark.replace("｜", "｜｜")


class DeepSeekV32Parser(AttributeCalls):
    """DeepSeek V3.2 and V4: DSML. Each parameter says whether it is a string; if not, it is JSON.
    The schema counts more, since models write `string="true"` for numbers, too.
    """

    sections = tuple(
        (start, end)
        for name in ("function_calls", "tool_calls")
        for start, end in zip(_bars(f"<｜DSML｜{name}>"), _bars(f"</｜DSML｜{name}>"), strict=True)
    )
    call_begin = "<｜DSML｜invoke "
    call_end = "</｜DSML｜invoke>"
    element_begin = "<｜DSML｜parameter "
    element_end = "</｜DSML｜parameter>"
    inner_marks = tuple(
        mark for one in (element_begin, element_end, call_end, call_begin) for mark in _bars(one)
    )
    type_attribute = "string"
    holds: ClassVar[Mapping[str, str]] = {"true": "text", "false": "json"}
    untyped = ""
    wrappers = ("arguments", "input")
    call_syntax = ElementSyntax(
        start=lambda name, kind, is_nested: (
            f'<｜DSML｜parameter name="{name}" string="{json.dumps(kind == "string")}">'
        ),
        end=lambda name: "</｜DSML｜parameter>\n",
        stops=(
            *("</｜DSML｜parameter>", "<｜DSML｜parameter ", "</｜DSML｜invoke>"),
            *("</｜DSML｜function_calls>", "</｜DSML｜tool_calls>"),
        ),
        is_nested=False,
    ).calls(
        '<｜DSML｜invoke name="…">\n…</｜DSML｜invoke>\n',
        "<｜DSML｜function_calls>\n…</｜DSML｜function_calls>",
    )
    template_marks = (("｜DSML｜",),)


class DoubledBarsParser(DeepSeekV32Parser):
    """DeepSeek V3.2 with doubled bars in all marks: `<｜｜DSML｜｜invoke name="f">`."""

    call_begin = _bars(DeepSeekV32Parser.call_begin)[1]
    call_end = _bars(DeepSeekV32Parser.call_end)[1]
    element_begin = _bars(DeepSeekV32Parser.element_begin)[1]
    element_end = _bars(DeepSeekV32Parser.element_end)[1]


DeepSeekV32Parser.other_bodies = {
    start: {DoubledBarsParser.call_begin: DoubledBarsParser}
    for start, _ in DeepSeekV32Parser.sections
}


_OPEN, _CLOSE, _SEP = "<|open|>", "<|close|>", "<|sep|>"
_KIMI_CHANNELS = ("think", "response", "tools", "message")
_KIMI_ELEMENTS = ("call", "argument")


class KimiK3Parser(AttributeCalls):
    """Kimi K3: calls are in the channel `tools`, text in `response`."""

    sections = ((f"{_OPEN}tools{_SEP}", f"{_CLOSE}tools{_SEP}"),)
    call_begin = f"{_OPEN}call "
    call_end = f"{_CLOSE}call{_SEP}"
    element_begin = f"{_OPEN}argument "
    element_end = f"{_CLOSE}argument{_SEP}"
    any_end = (_CLOSE, _SEP)
    start_end = _SEP
    name_attribute, key_attribute, key_head = "tool", "key", 'key="'
    holds: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("number", "boolean", "null", "array", "object"), "json"
    )
    inner_marks = (
        *(f"{_OPEN}{name}{_SEP}" for name in _KIMI_CHANNELS),
        *(f"{_CLOSE}{name}{_SEP}" for name in (*_KIMI_CHANNELS, *_KIMI_ELEMENTS)),
        element_begin,
    )
    fragments = (_OPEN, _CLOSE, _SEP)
    call_syntax = replace(
        ElementSyntax(
            start=lambda name, kind, is_nested: (
                f'{_OPEN}argument key="{escape(name)}" '
                f'type="{"number" if kind == "integer" else kind}"{_SEP}'
            ),
            end=lambda name: f"{_CLOSE}argument{_SEP}",
            stops=(
                f"{_OPEN}argument ",
                *(f"{_CLOSE}{one}{_SEP}" for one in ("argument", "call", "tools")),
            ),
            is_nested=False,
        ).calls(f'{_OPEN}call tool="…" index="…{call_end}', "…".join(sections[0])),
        lead=f"{_CLOSE}response{_SEP}",
        after_name=(regex("[1-9][0-9]{0,3}"), const_string(f'"{_SEP}')),
    )
    template_marks = ((f"{_OPEN}tools{_SEP}",), (_OPEN, _CLOSE, _SEP))


def _cohere_start(name: str, kind: str, is_nested: bool) -> str:
    named = f'name="{escape(name)}" ' if name else ""
    nested = {"object": "dict", "array": "list"}.get(kind) if is_nested else None
    return f'<cofl:value {named}type="{nested or ("raw" if kind == "string" else "json")}">'


class CohereXmlParser(AttributeCalls):
    """Cohere's XML. Types are raw, json, dict and list, the last two with elements in them."""

    sections = (("<cofl:tool_calls>", "</cofl:tool_calls>"),)
    call_begin = "<cofl:tool_call "
    call_end = "</cofl:tool_call>"
    element_begin = "<cofl:value "
    element_end = "</cofl:value>"
    holds: ClassVar[Mapping[str, str]] = {
        "raw": "text",
        **{kind: kind for kind in ("json", "dict", "list")},
    }
    inner_marks = (element_begin, element_end, call_end, *COHERE_WRAPPERS)
    call_syntax = replace(
        ElementSyntax(
            start=_cohere_start,
            end=lambda name: "</cofl:value>",
            stops=("</cofl:value>", "<cofl:value ", "</cofl:tool_call>", "</cofl:tool_calls>"),
            is_nested=True,
        ).calls('<cofl:tool_call id="…">…</cofl:tool_call>', "…".join(sections[0])),
        before_name=(regex("[0-9]{1,4}"), const_string('" name="')),
    )


_NAMESPACE = "]<]minimax[>["


class MiniMaxM3Parser(NestedCalls):
    """MiniMax M3: tags are named like the arguments. Lists hold `item` elements, and values have
    the types of the tool's schema.
    """

    sections = ((f"{_NAMESPACE}<tool_call>", f"{_NAMESPACE}</tool_call>"),)
    call_begin = f'{_NAMESPACE}<invoke name="'
    call_end = f"{_NAMESPACE}</invoke>"
    element_begin = f"{_NAMESPACE}<"
    value_stop = _NAMESPACE
    any_end = (f"{_NAMESPACE}</", ">")
    unlisted_types = frozenset({"string", "null"})
    inner_marks = (call_end, _NAMESPACE)
    call_syntax = replace(
        ElementSyntax(
            start=lambda name, kind, is_nested: f"{_NAMESPACE}<{name or 'item'}>",
            end=lambda name: f"{_NAMESPACE}</{name or 'item'}>",
            stops=(_NAMESPACE,),
            is_nested=True,
            says_type=False,
        ).calls(f'{call_begin}…">…{call_end}\n', "\n…".join(sections[0])),
        trigger=_NAMESPACE,
    )
    template_marks = ((_NAMESPACE,),)

    def _call_head(self) -> Steps[str]:
        name = yield from self._whole_name()
        yield from self._expect('">')
        return name

    def _element_head(self) -> Steps[Element]:
        name = yield from self._reader.word(_TAG_NAME)
        yield from self._expect(">")
        if not name:
            raise Broken
        return Element(key=name, end=f"{_NAMESPACE}</{name}>")

    def _is_unopened(self, inner: Container) -> Steps[bool]:
        if (yield from self._reader.follows(0, (self.element_begin, inner.end))) is not None:
            return False
        yield from self._reader.accept(_NAMESPACE)
        parts: list[str] = []
        yield from self._until(_NAMESPACE, parts.append)
        yield from self._expect(f"{_NAMESPACE}</")
        key = yield from self._reader.word(_TAG_NAME)
        yield from self._expect(">")
        if not self._properties or not self._is_next_key(key):
            raise Broken
        value = _scalar("".join(parts), self._types(self._child(inner, key), ""), is_json=False)
        self._begin_argument(key)
        self._emit_arguments(value)
        inner.count += 1
        return True
