"""Gemma 4: `<|tool_call>call:f{city:<|"|>Paris<|"|>,n:1}<tool_call|>`."""

from __future__ import annotations

import json
import re

from proxy.language.syntax.parsing.delimiters import Delimiters
from proxy.language.syntax.parsing.reader import Steps
from proxy.language.syntax.tools.call_syntax import CallSyntax
from proxy.language.syntax.tools.family import ToolFamily
from proxy.language.syntax.tools.literal import Broken, CutOff, Literal, Place, escaped
from proxy.language.syntax.tools.section_calls import SectionCalls

_QUOTE = '<|"|>'
_QUOTES = Delimiters([_QUOTE])
_KEY = re.compile(r"[^:,<>{}\[\]\"\s]*")


class Gemma4Parser(SectionCalls):
    """Bare keys, strings between special tokens, otherwise like JSON."""

    call_begin = "<|tool_call>"
    inner_marks = (_QUOTE, "<tool_call|>")

    def _call(self) -> Steps[None]:
        yield from self._reader.space()
        yield from self._expect("call:")
        self._name = yield from self._whole_name()
        yield from self._reader.space()
        char = yield from self._reader.peek()
        if not char:
            raise CutOff
        if not self._name or char != "{":
            raise Broken
        self._start_call()
        yield from _GemmaLiteral(self._reader, self._emit_arguments).read()
        self._end_call()
        yield from self._end("<tool_call|>")


class _GemmaLiteral(Literal):
    """Strings have no escapes, and end at their token."""

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
        self._put(json.dumps(key, ensure_ascii=False))

    def _value(self, char: str) -> Steps[None]:
        if char != "<":
            yield from super()._value(char)
            return
        if not (yield from self._reader.accept(_QUOTE)):
            if self._reader.may_end_in(_QUOTE):
                raise CutOff
            raise self._broken()
        self._put('"')
        found = yield from self._reader.until(
            _QUOTES, lambda text: self._write(escaped(text)), leaves_partial=True
        )
        if not found:
            raise CutOff
        self._reader.take(len(_QUOTE))
        self._put('"')
        self._place = Place.SEPARATOR


GEMMA4 = ToolFamily(
    parser_type=Gemma4Parser,
    # A structural tag cannot describe bare keys and Gemma's quotes; the parser reads JSON as well.
    call_syntax=CallSyntax(
        begin="<|tool_call>call:", middle="", end="<tool_call|>", trigger="<|tool_call>"
    ),
    template_marks=(("<|tool_call>", "<tool_call|>"),),
)
