"""Pythonic models: `[f(city="Paris"), g(x=1)]`."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from proxy.language.structured.structural_tags import Format, const_string, json_format, sequence
from proxy.language.syntax.call_syntax import (
    INPUT,
    CallSyntax,
    InputSyntax,
    argument_list,
    has_independent_arguments,
)
from proxy.language.syntax.literal import Broken, CutOff, Literal
from proxy.language.syntax.reader import Steps
from proxy.language.syntax.tool_parser import BareCalls, TemplateMarks

_NAME = re.compile(r"[\w.]*")
_KEYWORD = re.compile(r"\w*")


def _keyword_arguments(schema: Any) -> Format:
    """`city="Paris", days=2`"""

    def write(name: str, one: Any) -> Format:
        return sequence(const_string(f"{name}="), json_format(one))

    return argument_list(schema, write, ", ")


def _as_keywords(arguments: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in arguments.items()
    )


def _can_be_keywords(schema: Any) -> bool:
    """Whether a guide can hold keyword arguments to this schema."""
    names = schema.get("properties", {})
    return has_independent_arguments(schema) and all(name.isidentifier() for name in names)


class PythonicParser(BareCalls):
    """A list of calls with keyword arguments, each a literal."""

    openings = "{["  # some write JSON
    call_syntax: ClassVar[CallSyntax] = CallSyntax(
        head="[",
        begin="",
        middle="(",
        arguments=_keyword_arguments,
        write=_as_keywords,
        input=InputSyntax(begin=f'{INPUT}="', end='"'),
        can_hold=_can_be_keywords,
        end=")",
        separator=", ",
        foot="]",
        is_clear=False,
    )
    template_marks: ClassVar[TemplateMarks] = (("[func_name1(",),)

    def _first(self, start: str) -> Steps[bool]:
        yield from self._reader.accept(start)
        yield from self._reader.space()
        if not (yield from self._reader.accept("[")) and not start:
            raise Broken
        yield from self._reader.space()
        yield from self._call()
        return True

    def _next(self, start: str) -> Steps[bool]:
        gap = yield from self._reader.space()
        if (yield from self._reader.accept(",")):
            yield from self._reader.space()
            yield from self._call()
            return True
        if (yield from self._reader.accept("]")):
            gap = ""
        yield from self._end(dict(self.sections).get(start, ""), gap)
        return False

    def _call(self) -> Steps[None]:
        name = yield from self._reader.word(_NAME)
        if not name or not (yield from self._reader.accept("(")):
            raise Broken
        self._name = name
        yield from self._reader.space()
        while not (yield from self._reader.accept(")")):
            yield from self._keyword()
            yield from self._comma(")")
        self._close_arguments()

    def _keyword(self) -> Steps[None]:
        key = yield from self._reader.word(_KEYWORD)
        yield from self._reader.space()
        if not (yield from self._reader.peek()):
            raise CutOff
        if not key or not (yield from self._reader.accept("=")):
            raise Broken
        self._begin_argument(key)
        yield from self._reader.space()
        yield from Literal(self._reader, self._emit_arguments).read()
        self._end_argument()


class Llama4PythonicParser(PythonicParser):
    """Llama 4: `[f(city="Paris")]`, sometimes between `<|python_start|>` and `<|python_end|>`.

    The same list, with or without its tags.
    """

    sections = (("<|python_start|>", "<|python_end|>"),)
    starts = ("<|python_start|>",)
    template_marks = (("<|python_start|>",),)


class Lfm2Parser(PythonicParser):
    """LFM2 and LFM2.5: `<|tool_call_start|>[f(city="Paris")]<|tool_call_end|>`.

    The same list between tags, which are special tokens.
    """

    sections = (("<|tool_call_start|>", "<|tool_call_end|>"),)
    starts = ("<|tool_call_start|>",)
    call_syntax = replace(
        PythonicParser.call_syntax,
        head="<|tool_call_start|>[",
        foot="]<|tool_call_end|>",
        trigger="<|tool_call_start|>",
        is_clear=True,
    )
    template_marks = (
        ("<|tool_call_start|>",),
        ("<|tool_list_start|>",),
        ("List of tools: [", "<|im_start|>"),
    )
