"""The families that write a call like XML: a name, then keys with values.

Strings stand bare and stream; other values wait until they are complete, and get their type from
the tool's JSON Schema. Guides hold them to JSON.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

from proxy.language.structured.escaped_grammar import IN_MARKUP
from proxy.language.structured.keywords import is_wide
from proxy.language.structured.schema import DEFINITIONS, followed, is_pointer, resolved, schemas
from proxy.language.structured.structural_tags import (
    Format,
    const_string,
    either,
    json_format,
    regex,
    tag,
)
from proxy.language.syntax.bare_values import BareValue, ValueMarks
from proxy.language.syntax.call_syntax import (
    INPUT,
    InputSyntax,
    WriteArguments,
    argument_list,
    has_independent_arguments,
    written_as,
)
from proxy.language.syntax.literal import Broken, CutOff, escaped, literal_in
from proxy.language.syntax.reader import Steps, Stripped
from proxy.language.syntax.tool_parser import SectionCalls, TemplateMarks

ANY_TYPE = frozenset({"string", "number", "integer", "boolean", "null", "object", "array"})
_PYTHON_TYPES = {
    **{"str": "string", "int": "integer", "float": "number", "bool": "boolean"},
    **{"dict": "object", "list": "array", "tuple": "array"},
}
_NAMED_VALUES = {"true": "true", "false": "false", "null": "null", "none": "null"}
_MAX_DEPTH = 8


def types_of(schema: Any, root: Any = None) -> frozenset[str]:
    """The JSON types that a schema allows; all types if it does not restrict them.

    root: the schema that its references point into.
    """
    return _Types(root).of(schema)


def typed(text: str, types: frozenset[str]) -> str:
    """The JSON of a value written as text: of an allowed type if possible, else a string."""
    bare = text.strip()
    found = _NAMED_VALUES.get(bare.lower()) or literal_in(bare)
    if found is None or types == {"string"}:
        return f'"{escaped(text)}"'
    if "string" in types and _type_of_json(found) not in types:
        return f'"{escaped(text)}"'
    return found


class _Types:
    """Resolves each reference once."""

    def __init__(self, root: Any) -> None:
        self._root = root
        self._referred: dict[str, frozenset[str]] = {}

    def of(self, schema: Any, depth: int = 0) -> frozenset[str]:
        if not isinstance(schema, Mapping) or depth > _MAX_DEPTH:
            return ANY_TYPE
        if "type" in schema:
            return _named(schema["type"])
        if "const" in schema or isinstance(schema.get("enum"), list):
            values = schema.get("enum", [schema.get("const")])
            return frozenset(map(_type_of_value, values)) or ANY_TYPE
        if is_pointer(schema.get("$ref")):
            return self._of_reference(schema["$ref"], depth + 1)
        for key in ("allOf", "anyOf", "oneOf"):
            if isinstance(schema.get(key), list) and schema[key]:
                joined = frozenset.intersection if key == "allOf" else frozenset.union
                return joined(*(self.of(one, depth + 1) for one in schema[key])) or ANY_TYPE
        return ANY_TYPE

    def _of_reference(self, reference: str, depth: int) -> frozenset[str]:
        if reference not in self._referred:
            self._referred[reference] = ANY_TYPE  # until it is resolved: it may lead to itself
            self._referred[reference] = self.of(resolved(self._root, reference), depth)
        return self._referred[reference]


def _named(names: Any) -> frozenset[str]:
    listed = [names] if isinstance(names, str) else names
    if not isinstance(listed, list):
        return ANY_TYPE
    known = {_PYTHON_TYPES.get(str(name), str(name)) for name in listed} & ANY_TYPE
    if "number" in known:
        known.add("integer")
    return frozenset(known) or ANY_TYPE


def _type_of_value(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, Mapping):
        return "object"
    names = {str: "string", int: "integer", float: "number", list: "array", type(None): "null"}
    return names.get(type(value), "string")


def _type_of_json(text: str) -> str:
    names = {'"': "string", "{": "object", "[": "array", "t": "boolean", "f": "boolean"}
    if text == "null":
        return "null"
    is_whole = not any(mark in text for mark in ".eE")
    return names.get(text[0], "integer" if is_whole else "number")


_KEY = re.compile(r"[^<>\"\n]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Markup:
    """The marks of a call: name `name_end` (key_begin key key_end value value_end)* `end`."""

    name_end: str
    key_begin: str
    key_end: str
    value_begin: str = ""
    value_end: str
    end: str
    # Whether the syntax puts each value on lines of its own.
    has_lines: bool = False
    also_space: str = ""  # between the elements

    @property
    def input(self) -> InputSyntax:
        line = "\n" if self.has_lines else ""
        begin = f"{self.key_begin}{INPUT}{self.key_end}{self.value_begin}{line}"
        return InputSyntax(begin=begin, end=line + self.value_end, escapes=IN_MARKUP)

    @property
    def written(self) -> tuple[str, ...]:
        """Every mark of the syntax."""
        marks = (self.name_end, self.key_begin, self.key_end, self.value_begin, self.value_end)
        return tuple(filter(None, (*marks, self.end)))

    def value_marks(self, sections: Mapping[str, str], call_begin: str) -> ValueMarks:
        """Where values end, if calls are in these sections."""
        ends, starts = tuple(filter(None, sections.values())), tuple(sections)
        return ValueMarks(
            end=self.value_end,
            key_begin=self.key_begin,
            key_end=self.key_end,
            after=tuple(filter(None, (self.end, *ends, self.also_space))),
            call_ends=(
                (self.end, (*ends, *starts, call_begin)),
                *((end, (*starts, call_begin)) for end in ends),
            ),
            begins=(*starts, call_begin),
            has_lines=self.has_lines,
            gap=re.compile(rf"(?:[ \t\r\n]|{re.escape(self.also_space) or '(?!)'})*"),
        )


class MarkupCalls(SectionCalls):
    """A family is data: how its calls are written, with `…` for what is between the marks. Its
    marks and its guide follow from that; elements are on lines of their own where the first is.
    """

    call_form: ClassVar[str]  # around name and elements
    element_form: ClassVar[str]  # around key and value
    section_form: ClassVar[str] = "…"  # around calls
    has_own_section: ClassVar[bool] = False  # each call
    # The types of a value that the tool's schema does not list.
    unlisted_types: ClassVar[frozenset[str]] = ANY_TYPE
    has_lines: ClassVar[bool] = False  # as Markup's
    also_space: ClassVar[str] = ""  # as Markup's
    barred: ClassVar[str] = ""  # from values in guides
    strips_values: ClassVar[bool] = False  # of white space
    markup: ClassVar[Markup]
    _value_marks: ClassVar[ValueMarks]

    @cached_property
    def _known_types(self) -> dict[tuple[str, str], frozenset[str]]:
        """By tool and key: a schema may be large, and a model may write a key many times."""
        return {}

    def __init_subclass__(cls) -> None:
        written = written_as(cls.call_form, cls.section_form)
        section = (written.head.strip(), written.foot.strip())
        if "sections" not in vars(cls):
            cls.sections = (section,) if any(section) else ()
        cls.call_begin = written.begin.strip()
        super().__init_subclass__()
        key_begin, between, value_end = cls.element_form.split("…")
        key_end, _, value_begin = between.partition(">")
        cls.markup = Markup(
            name_end=written.middle.strip(),
            key_begin=key_begin,
            key_end=f"{key_end}>",
            value_begin=value_begin,
            value_end=value_end,
            end=written.end.strip(),
            has_lines=cls.has_lines,
            also_space=cls.also_space,
        )
        cls._value_marks = cls.markup.value_marks(dict(cls.sections), cls.call_begin)
        cls.inner_marks = cls.markup.written
        if cls.has_own_section:
            begin, end = f"{written.head}{written.begin}", f"{written.end}{written.foot}"
            written = replace(written, head="", begin=begin, end=end, foot="")
        line = "\n" if written.middle.endswith("\n") else ""
        cls.call_syntax = replace(
            written,
            arguments=markup_arguments(cls.markup, line, cls.barred or section[1]),
            input=cls.markup.input,
            can_hold=can_be_elements,
            separator="" if written.head else line,
        )

    def _call(self) -> Steps[None]:
        yield from self._gap()
        self._name = yield from self._in_quotes(self._whole_name())
        is_known = self._name in self._tools
        yield from self._end_of_name(self.markup.name_end, is_known)
        yield from self._gap()
        if (yield from self._has_bare_object()):
            yield from self._json_arguments()
            yield from self._end(self.markup.end)
            return
        while not (yield from self._ends()):
            key = yield from self._key()
            yield from self._value(key, self._types(key))
            self._end_argument()
            yield from self._gap()
        self._close_arguments()

    def _in_quotes(self, word: Steps[str]) -> Steps[str]:
        """Reads a word and the quotation marks that a model may write around it."""
        is_quoted = yield from self._reader.accept('"')
        found = yield from word
        if is_quoted:
            yield from self._reader.accept('"')
        return found

    def _gap(self) -> Steps[None]:
        """What may stand between the elements."""
        yield from self._reader.space()
        while self.markup.also_space and (yield from self._reader.accept(self.markup.also_space)):
            yield from self._reader.space()

    def _ends(self) -> Steps[bool]:
        """Whether the call ends here. The section's end also ends it, and is not taken."""
        if (yield from self._reader.accept(self.markup.end)):
            return True
        for _, end in self.sections:
            if end and (yield from self._reader.look(len(end))) == end:
                return True
        return False

    def _key(self) -> Steps[str]:
        if not (yield from self._reader.accept(self.markup.key_begin)):
            if self._reader.may_end_in(self.markup.end):
                raise CutOff("")
            yield from self._expect(self.markup.key_begin)
        key = (yield from self._in_quotes(self._reader.word(_KEY))).strip()
        is_known = key in self._properties
        yield from self._end_of_name(self.markup.key_end, is_known)
        if self.markup.value_begin:
            yield from self._gap()
            has_begin = yield from self._reader.accept(self.markup.value_begin)
            # without it, what follows the key of the tool is the value, unless it is another mark
            if not has_begin and (not is_known or (yield from self._reader.peek()) in ("<", "")):
                yield from self._expect(self.markup.value_begin)
        return key

    def _marks_of_value(self) -> Steps[ValueMarks]:
        yield from ()
        return self._value_marks

    def _value(self, key: str, types: frozenset[str]) -> Steps[None]:
        self._begin_argument(key)
        if self.markup.has_lines:
            yield from self._reader.accept("\n")
        marks = yield from self._marks_of_value()
        value = BareValue(self._reader, marks, self._is_next_key)

        def write(text: str) -> None:
            self._emit_arguments(escaped(text))

        if types == {"string"}:
            self._emit_arguments('"')
            lost = yield from value.read(Stripped(write) if self.strips_values else write)
            self._emit_arguments('"')
        else:
            parts: list[str] = []
            lost = yield from value.read(parts.append)
            text = "".join(parts)
            self._emit_arguments(typed(text.strip() if self.strips_values else text, types))
        if lost:
            raise Broken(lost)

    def _types(self, key: str) -> frozenset[str]:
        if key not in self._properties:
            return self.unlisted_types
        known = self._known_types.get((self._name, key))
        if known is None:
            known = types_of(self._properties[key], self._tools[self._name])
            self._known_types[self._name, key] = known
        return known


_LENGTHS = ("minLength", "maxLength")
# A bare string can be held to these keywords, and to no others.
_TEXT_KEYWORDS = {
    "type",
    "enum",
    "const",
    "pattern",
    "title",
    "description",
    "default",
    "format",
    *_LENGTHS,
    *DEFINITIONS,
}
_ESCAPE_OR_CLASS = re.compile(r"\\.|\[(?:\\.|[^\]\\])*\]", re.DOTALL)
_NAME = re.compile(r"[^<>\"\s]+")


def markup_arguments(markup: Markup, separator: str, section_end: str) -> WriteArguments:
    line = "\n" if markup.has_lines else ""

    def write(name: str, schema: Any) -> Format:
        is_text = types_of(schema, schema) == {"string"}
        begin = f"{markup.key_begin}{name}{markup.key_end}{markup.value_begin}{line}"
        # What may end a value that is not closed; the section's end is not always the call's.
        ends = [markup.value_end, markup.key_begin, markup.end, *filter(None, [section_end])]
        text = followed(schema, schema)
        content = text_format(text, ends) if is_text else json_without(schema, ends)
        return tag(begin, content, line + markup.value_end)

    return lambda schema: argument_list(schema, write, separator)


def can_be_elements(schema: Any) -> bool:
    """Whether a guide can hold elements to this schema of a tool's arguments."""
    is_safe = has_independent_arguments(schema) and has_safe_patterns(schema)
    return is_safe and all(
        _NAME.fullmatch(name)
        and (types_of(one, schema) != {"string"} or is_plain_text(followed(one, schema)))
        for name, one in schema.get("properties", {}).items()
    )


def is_plain_text(schema: Mapping[str, Any]) -> bool:
    """Whether a bare string can be held to the schema, and cannot end its element."""
    pattern = schema.get("pattern", "")
    is_loose = _may_hold_marks(pattern)
    is_short = not pattern or not set(_LENGTHS) & set(schema)
    values = _strings(schema)
    has_values = values is None or (bool(values) and "<" not in "".join(values))
    return set(schema) <= _TEXT_KEYWORDS and not is_loose and is_short and has_values


def values_of(schema: Mapping[str, Any]) -> list[Any] | None:
    """The values that the schema lists; None where it lists none."""
    return [schema["const"]] if "const" in schema else schema.get("enum")


def _strings(schema: Mapping[str, Any]) -> list[str] | None:
    """The strings among the values that the schema lists; None where it lists no values."""
    listed = values_of(schema)
    return None if listed is None else [one for one in listed if isinstance(one, str)]


def text_format(schema: Mapping[str, Any], ends: list[str]) -> Format:
    if values := _strings(schema):
        return either(*map(const_string, values))
    if "pattern" in schema:
        return regex(schema["pattern"].removeprefix("^").removesuffix("$"))
    if any(name in schema for name in _LENGTHS):
        bounds = f"{schema.get('minLength', 0)},{schema.get('maxLength', '')}"
        return regex(f"[^<]{{{bounds}}}")
    return {"type": "any_text", "excludes": ends}


def json_without(schema: Any, ends: list[str]) -> Format:
    """JSON whose strings do not end the element. xgrammar does not exclude texts from strings that
    have a length: those are held to a pattern in its place, without the ends' first characters.
    """
    found = deepcopy(schema)
    barred = re.escape("".join(sorted({end[0] for end in ends})))
    for one in schemas(found):
        if set(_LENGTHS) & set(one) and isinstance(one, dict) and "pattern" not in one:
            bounds = f"{one.pop('minLength', 0)},{one.pop('maxLength', '')}"
            one["pattern"] = f'^[^{barred}"\\\\\\x00-\\x1f]{{{bounds}}}$'
    return json_format(found) | {"excludes": ends}


def has_safe_patterns(schema: Any) -> bool:
    """Whether no pattern in the schema lets a string hold what ends an element."""
    found = list(schemas(schema))
    patterns = [one["pattern"] for one in found if "pattern" in one]
    patterns += [name for one in found for name in one.get("patternProperties", ())]
    return not any(_may_hold_marks(one) for one in map(str, patterns))


def _may_hold_marks(pattern: str) -> bool:
    """Whether a match may contain `<`, which each mark that ends an element does."""
    if "<" in pattern or is_wide(pattern):
        return True
    try:
        return any(re.fullmatch(one, "<") for one in _ESCAPE_OR_CLASS.findall(pattern))
    except re.error:  # no class of Python's, such as half of an escape with a number
        return True


class Glm45Parser(MarkupCalls):
    """GLM 4.5; it writes each part on a line of its own, 4.7 all in one."""

    call_form = "<tool_call>…\n…\n</tool_call>"
    element_form = "<arg_key>…</arg_key><arg_value>…</arg_value>"
    also_space = "\\n"  # some models write the two characters for a line break
    template_marks = (("<arg_key>",),)


class Qwen3CoderParser(MarkupCalls):
    """Qwen 3 Coder, Nemotron Nano 3. Models forget the section; in Functionary 3.1 a call's begin
    is followed by JSON.
    """

    section_form, has_own_section = "<tool_call>\n…\n</tool_call>", True
    call_form = "<function=…>\n…\n</function>"
    element_form, has_lines = "<parameter=…>…</parameter>", True
    plain_marks = ("</parameter>", "</function>")
    template_marks: ClassVar[TemplateMarks | None] = (
        ("<function=", "<parameter="),
        ("<function=", "start_tag"),
    )


class MimoParser(Qwen3CoderParser):
    """MiMo: Qwen 3 Coder's marks without its line breaks: those in a value belong to the value."""

    section_form, call_form = "<tool_call>…</tool_call>", "<function=…>…</function>"
    has_lines = False
    template_marks = (("<tool_call><function=",),)


class MiniMaxM2Parser(MarkupCalls):
    """MiniMax M2. MiniMax's guide to tool calling reads a value that the schema does not list as a
    string, or as null.
    """

    section_form = "<minimax:tool_call>\n…</minimax:tool_call>"
    call_form = '<invoke name="…">\n…\n</invoke>\n'
    element_form = '<parameter name="…">…</parameter>'
    unlisted_types = frozenset({"string", "null"})
    plain_marks = ('<parameter name="', "</parameter>", "</invoke>")


class MuseGlimmerParser(MarkupCalls):
    """Muse Glimmer. Each call is in a message of its own, whose header the reasoning parser has
    taken out.
    """

    section_form, has_own_section = "<atem:function_calls>\n…\n</atem:function_calls>", True
    call_form = '<atem:invoke name="…">\n…\n</atem:invoke>'
    element_form = '<atem:parameter name="…">…</atem:parameter>'


class SeedOssParser(Qwen3CoderParser):
    """Seed-OSS: Qwen 3 Coder's elements in a section of another name."""

    section_form = "<seed:tool_call>\n…\n</seed:tool_call>"
    has_lines = False
    template_marks = None


class Hy3Parser(MarkupCalls):
    """Hy3: GLM's elements in a section; all marks have a suffix."""

    section_form = "<tool_calls:opensource>\n…</tool_calls:opensource>"
    call_form = "<tool_call:opensource>…<tool_sep:opensource>\n…\n</tool_call:opensource>\n"
    element_form = (
        "<arg_key:opensource>…</arg_key:opensource><arg_value:opensource>…</arg_value:opensource>"
    )
    template_marks = (("<tool_sep{}>",), ("<tool_sep:opensource>",))


_CDATA, _CDATA_END = "<![CDATA[", "]]>"


class MiniCpm5Parser(MarkupCalls):
    """MiniCPM5. Strings with `<`, `&` or line breaks are in CDATA."""

    call_form = '<function name="…">…</function>'
    element_form, barred = '<param name="…">…</param>', _CDATA
    plain_marks = ('<param name="', "</param>", "</function>")
    template_marks = (('<param name="',),)

    def _marks_of_value(self) -> Steps[ValueMarks]:
        if not (yield from self._reader.accept(_CDATA)):
            return self._value_marks
        return replace(self._value_marks, end=f"{_CDATA_END}{self.markup.value_end}")
