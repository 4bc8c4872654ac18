"""The families with marks around each call that are neither JSON objects nor XML-like elements:
DeepSeek V3 and V3.1, Gemma 4 and FunctionGemma, gpt-oss, Kimi K2.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property, lru_cache
from string import ascii_lowercase, digits
from typing import ClassVar

from proxy.language.structured.structural_tags import const_string, regex
from proxy.language.syntax.call_syntax import CallSyntax, written_as
from proxy.language.syntax.element_calls import typed, types_of
from proxy.language.syntax.literal import Broken, CutOff, Literal, Place, escaped
from proxy.language.syntax.reader import Delimiters, PassOn, Reader, Steps, delimiters
from proxy.language.syntax.reasoning import SOLAR_WRAPPERS
from proxy.language.syntax.tool_parser import SectionCalls, TemplateMarks, ToolParser


class DeepSeekV3Parser(SectionCalls):
    """DeepSeek V3 and R1-0528: a type, the name, and the arguments in a JSON fence."""

    sections = (("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"),)
    call_begin = "<｜tool▁call▁begin｜>"
    inner_marks = ("<｜tool▁sep｜>", "<｜tool▁call▁end｜>")
    call_syntax = written_as(
        "<｜tool▁call▁begin｜>function<｜tool▁sep｜>…\n```json\n…\n```<｜tool▁call▁end｜>",
        "…".join(sections[0]),
        separator="\n",
    )
    template_marks: ClassVar[TemplateMarks | None] = (("<｜tool▁call▁begin｜>", "```json"),)

    def _call(self) -> Steps[None]:
        """Either form: without the type, the name stands before the separator."""
        name = yield from self._whole_name()
        yield from self._expect("<｜tool▁sep｜>")
        if name == "function":
            char = yield from self._reader.peek()
            name = name if char == "{" else (yield from self._whole_name())
        self._name = name
        yield from self._reader.space()
        is_fenced = yield from self._reader.accept("```json")
        yield from self._reader.space()
        yield from self._json_arguments("```" if is_fenced else "<｜tool▁call▁end｜>")
        if is_fenced:
            yield from self._end("```")
        yield from self._end("<｜tool▁call▁end｜>")


class DeepSeekV31Parser(DeepSeekV3Parser):
    """DeepSeek V3.1: the name before the separator, the arguments bare after it."""

    call_syntax = written_as(
        "<｜tool▁call▁begin｜>…<｜tool▁sep｜>…<｜tool▁call▁end｜>",
        "…".join(DeepSeekV3Parser.sections[0]),
    )
    template_marks = (("<｜tool▁call▁begin｜>",),)


class NamedCalls(SectionCalls):
    """A mark, the name, a mark, the arguments in JSON, a mark: as a response template says."""

    name_end: ClassVar[str]
    call_end: ClassVar[str]

    def _call(self) -> Steps[None]:
        yield from self._reader.space()
        self._name = yield from self._whole_name()
        yield from self._reader.space()
        yield from self._expect(self.name_end)
        yield from self._reader.space()
        yield from self._json_arguments(*filter(None, (self.call_end,)))
        yield from self._end(self.call_end)


STRING = frozenset({"string"})
_KEY = re.compile(r"[^:=,<>(){}\[\]\"\s]*")
_OTHER_VALUES = "{[\"'"
_MOST_UNOPENED = 4_096


class Gemma4Parser(SectionCalls):
    """Gemma 4: `<|tool_call>call:f{city:<|"|>Paris<|"|>,n:1}<tool_call|>`.

    Bare keys, strings between special tokens, otherwise like JSON. `call` may be missing.
    """

    quote: ClassVar[str] = '<|"|>'
    call_begin: ClassVar[str] = "<|tool_call>"
    call_end: ClassVar[str] = "<tool_call|>"
    inner_marks: ClassVar[tuple[str, ...]] = (quote, call_end)
    # A structural tag cannot describe bare keys and Gemma's quotes; the parser reads JSON as well.
    call_syntax = written_as("<|tool_call>call:……<tool_call|>")
    template_marks: ClassVar[TemplateMarks | None] = (("<|tool_call>", "<tool_call|>"),)

    def _call(self) -> Steps[None]:
        yield from self._reader.space()
        if not (yield from self._reader.accept("call:")):
            yield from self._reader.accept(":")
        yield from self._reader.space()
        self._name = yield from self._whole_name()
        yield from self._reader.space()
        if self._name and (yield from self._reader.accept(self.call_end)):
            self._close_arguments()
            return
        char = yield from self._reader.peek()
        if not char:
            raise CutOff
        if not self._name or char not in ("{", "("):
            raise Broken
        self._start_call()
        literal = _GemmaLiteral(self._reader, self._emit_arguments, self.quote, self._types)
        yield from literal.read_call()
        self._end_call()
        yield from self._end(self.call_end)

    def _types(self, key: str) -> frozenset[str]:
        """The JSON types that an argument may get if the model has written it as a string."""
        return STRING


class FunctionGemmaParser(Gemma4Parser):
    """FunctionGemma: `<start_function_call>call:f{city:<escape>Paris<escape>}<end_function_call>`.

    As Gemma 4, but templates write numbers as strings, too. What follows the calls begins the
    results, which the model waits for.
    """

    quote = "<escape>"
    call_begin = "<start_function_call>"
    call_end = "<end_function_call>"
    inner_marks = (quote, call_end, "<start_function_response>")
    call_syntax = written_as("<start_function_call>call:……<end_function_call>")
    template_marks = None

    def _types(self, key: str) -> frozenset[str]:
        return types_of(self._properties.get(key), self._tools.get(self._name))


class _GemmaLiteral(Literal):
    """Strings have no escapes, and end at their token; where only the first is missing, too.

    Models also write round brackets around the arguments, with or without curly ones.
    """

    def __init__(
        self, reader: Reader, write: PassOn, quote: str, types: Callable[[str], frozenset[str]]
    ) -> None:
        super().__init__(reader, write)
        self._quote = quote
        self._types = types  # of an argument
        self._argument = ""

    def read_call(self) -> Steps[None]:
        """The arguments of a call; raises as `read`."""
        if not (yield from self._reader.accept("(")):
            yield from self.read()
            return
        self._held = yield from self._reader.space()
        if (yield from self._reader.peek()) == "{":
            yield from self.read()
            yield from self._reader.space()
            yield from self._reader.accept(")")
            return
        self._put("{")
        self._closings, self._place = [")"], Place.FIRST_KEY
        while self._closings:
            yield from self._step()

    def _close(self) -> None:
        is_call = self._closings == [")"]
        if not is_call:
            super()._close()
            return
        self._held = ""
        self._closings.pop()
        self._reader.take(1)
        self._put("}")
        self._place = Place.SEPARATOR

    def _expect(self, char: str, wanted: str, then: Place) -> None:
        if char == "=" and wanted == ":" and self._closings == [")"]:
            self._reader.take(1)
            self._put(":")
            self._place = then
            return
        super()._expect(char, wanted, then)

    @property
    def _ends(self) -> str:
        return "".join(reversed(self._closings)).replace(")", "}")

    def _key(self, char: str) -> Steps[None]:
        if char == "<":
            yield from self._value(char)
            return
        if char == '"':
            yield from super()._key(char)
            return
        key = yield from self._reader.word(_KEY)
        if not (yield from self._reader.peek()):
            raise CutOff
        if not key:
            raise self._broken()
        if len(self._closings) == 1:
            self._argument = key
        self._put(json.dumps(key, ensure_ascii=False))

    def _value(self, char: str) -> Steps[None]:
        if char == "(":
            raise self._broken()
        if char != "<":
            if char not in _OTHER_VALUES:
                end = yield from self._reader.find(_unopened(self._quote), _MOST_UNOPENED)
                if end and end[1]:
                    text = self._reader.take(end.start())
                    self._reader.take(len(self._quote))
                    self._put(f'"{escaped(text)}"')
                    self._place = Place.SEPARATOR
                    return
            yield from super()._value(char)
            return
        if not (yield from self._reader.accept(self._quote)):
            if self._reader.may_end_in(self._quote):
                raise CutOff
            raise self._broken()
        types = self._types(self._argument) if len(self._closings) == 1 else STRING
        parts: list[str] = []
        if types == STRING:
            self._put('"')
        keep = parts.append if types != STRING else lambda text: self._write(escaped(text))
        quotes = delimiters((self._quote,))
        if not (yield from self._reader.until(quotes, keep, leaves_partial=True)):
            raise CutOff
        self._reader.take(len(self._quote))
        self._put('"' if types == STRING else typed("".join(parts), types))
        self._place = Place.SEPARATOR


@lru_cache
def _unopened(quote: str) -> re.Pattern[str]:
    """The end of a string without its first token, unless the value ends before it."""
    end = re.escape(quote)
    return re.compile(rf"({end})(?=\s*[,}}\])])|{end}\s*[^\s,}}\])]|[}}\]]|,\s*[\w.\-]+\s*[:=]")


_MESSAGE = "<|message|>"
_ENDS = ("<|end|>", "<|call|>", "<|return|>")
_HEAD_MARKS = Delimiters([_MESSAGE, "<|start|>", *_ENDS, "{"])
_RECIPIENT = re.compile(r"to=([\w.\-]+)")


class HarmonyParser(ToolParser):
    """gpt-oss: calls as `<|channel|>commentary to=functions.f …<|message|>{…}` among messages.

    The reasoning parser has taken the channel `analysis` out; here `final` and preambles are text.
    Headers may stand before or behind the channel: `assistant to=functions.f<|channel|>…`.
    """

    starts = ("<|start|>", "<|channel|>")
    inner_marks = (_MESSAGE, "<|constrain|>", *_ENDS)
    # The token that ends a call ends the answer, too, so it is not a part of the syntax.
    call_syntax = CallSyntax(
        begin="<|channel|>commentary to=functions.",
        middle=" <|constrain|>json<|message|>",
        end="",
        is_single=True,
    )
    template_marks = (("<|channel|>", "commentary"),)

    def _parse(self) -> Steps[None]:
        # The prompt ends with `<|start|>assistant`; a recipient may follow it at once.
        if (yield from self._reader.look(4)) == " to=":
            yield from self._section("")
        yield from super()._parse()

    def _first(self, start: str) -> Steps[bool]:
        """A header, and the arguments if it names a function; any other message is text."""
        yield from self._reader.accept(start)
        head: list[str] = []
        mark = yield from self._reader.until(_HEAD_MARKS, head.append, leaves_partial=True)
        found = _RECIPIENT.search("".join(head))
        if found and found[1] == "assistant":  # a result that the model made up
            found = None
        if not mark:
            raise CutOff
        if mark != _MESSAGE and not (mark == "{" and found):
            raise Broken
        yield from self._reader.accept(_MESSAGE)
        if found:
            self._name = found[1].removeprefix("functions.")
            self._reader.record()  # the header is never text, even if no arguments follow
            yield from self._reader.space()
            yield from self._json_arguments(*_ENDS)
            yield from self._call_end()
        return False

    def _next(self, start: str) -> Steps[bool]:
        yield from ()
        return False

    def _call_end(self) -> Steps[None]:
        gap = yield from self._reader.space()
        for end in _ENDS:
            if (yield from self._reader.accept_end(end)):
                return
        self._emit_text(gap)


_LETTERS = ascii_lowercase + digits
_ID = re.compile(r"[\w.\-/:]*")
_JOINTS = "._:-/"  # what models and clients put between the parts of an id
_OWN_ID = re.compile(r"(?:functions\.)?(.+):[0-9]+")
_CALL_BEGIN, _CALL_END = "<|tool_call_begin|>", "<|tool_call_end|>"
_ARGUMENTS_BEGIN = "<|tool_call_argument_begin|>"


class KimiK2Parser(SectionCalls):
    """Kimi K2: `<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{…}<|tool_call_end|>`.

    The model's own id goes to the client unchanged, since the model counts its calls over the
    whole conversation. An id that it repeats within one answer is replaced: results refer to their
    calls by id.
    """

    sections = (
        ("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"),
        ("<|tool_call_section_begin|>", "<|tool_call_section_end|>"),
    )
    call_begin = _CALL_BEGIN
    inner_marks = (_ARGUMENTS_BEGIN, _CALL_END)
    call_syntax = replace(
        written_as(f"{_CALL_BEGIN}functions.…:…{_CALL_END}", "…".join(sections[0])),
        # The number of the call, which the model counts over the conversation.
        after_name=(regex("[0-9]{1,4}"), const_string(_ARGUMENTS_BEGIN)),
    )
    _own_id = ""
    _spare_index = 0  # only grows, so that each of many repeated ids costs the same

    @staticmethod
    def new_id(name: str, index: int) -> str:
        """The model's own form, which its template renders back."""
        return f"functions.{name}:{index}"

    @cached_property
    def _used_ids(self) -> set[str]:
        return set()

    def _id(self, index: int) -> str:
        found = self._own_id or super()._id(index)
        self._spare_index = max(self._spare_index, index)
        while found in self._used_ids:
            found = super()._id(self._spare_index)
            self._spare_index += 1
        self._used_ids.add(found)
        return found

    def _call(self) -> Steps[None]:
        yield from self._reader.space()
        own_id = yield from self._reader.word(_ID)
        if not (yield from self._reader.peek()):
            raise CutOff
        found = _OWN_ID.fullmatch(own_id)
        self._own_id = own_id if found else ""
        written = found[1] if found else own_id.removeprefix("functions.")
        self._name = self._meant(written, own_id)
        if self._name != written:
            self._own_id = ""
        yield from self._reader.space()
        yield from self._expect(_ARGUMENTS_BEGIN)
        yield from self._reader.space()
        yield from self._json_arguments(_CALL_END)
        yield from self._end(_CALL_END)

    def _meant(self, name: str, own_id: str) -> str:
        """The tool that the model means. A number alone is the call's, and means the only tool."""
        if name in self._tools or not self._tools:
            return name
        if name.isdigit():
            return next(iter(self._tools)) if len(self._tools) == 1 else name
        bare = own_id.removeprefix("functions").lstrip(_JOINTS)
        meant = [
            tool
            for tool in self._tools
            if bare.startswith(tool) and (bare[len(tool) :].lstrip(_JOINTS) or "0").isdecimal()
        ]
        return meant[0] if len(meant) == 1 else name


class SolarOpenParser(SectionCalls):
    """Solar Open: `<|tool_call:begin|>id<|tool_call:name|>f<|tool_call:args|>{…}<|tool_call:end|>`.

    Ids are ten letters and digits, which the model makes up.
    """

    sections = (("<|tool_calls|>", "<|calls|>"),)
    call_begin = "<|tool_call:begin|>"
    inner_marks = (
        *("<|tool_call:name|>", "<|tool_call:args|>", "<|tool_call:end|>"),
        *SOLAR_WRAPPERS,
    )
    call_syntax = replace(
        written_as(
            "<|tool_call:begin|>…<|tool_call:args|>…<|tool_call:end|>", "…".join(sections[0])
        ),
        before_name=(regex("[a-z0-9]{10}"), const_string("<|tool_call:name|>")),
    )
    template_marks = (("<|tool_call:begin|>",),)

    @staticmethod
    def new_id(name: str, index: int) -> str:
        """Ten letters and digits, as the template asks for."""
        return "".join(secrets.choice(_LETTERS) for _ in range(10))

    def _call(self) -> Steps[None]:
        yield from self._reader.word(_ID)
        yield from self._expect("<|tool_call:name|>")
        self._name = yield from self._whole_name()
        yield from self._expect("<|tool_call:args|>")
        yield from self._reader.space()
        yield from self._json_arguments("<|tool_call:end|>")
        yield from self._end("<|tool_call:end|>")
