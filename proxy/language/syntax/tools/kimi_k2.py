"""Kimi K2: `<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{…}<|tool_call_end|>`."""

from __future__ import annotations

import re
from functools import cached_property
from typing import Any

from proxy.language.structured.tag_formats import (
    Format,
    const_string,
    json_format,
    regex,
    sequence,
)
from proxy.language.syntax.parsing.reader import Steps
from proxy.language.syntax.tools.call_syntax import CallSyntax
from proxy.language.syntax.tools.family import ToolFamily
from proxy.language.syntax.tools.literal import CutOff
from proxy.language.syntax.tools.section_calls import SectionCalls

_ID = re.compile(r"[\w.\-/:]*")
_OWN_ID = re.compile(r"(?:functions\.)?(.+):[0-9]+")
_SECTION_BEGIN, _SECTION_END = "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"
_CALL_BEGIN, _CALL_END = "<|tool_call_begin|>", "<|tool_call_end|>"
_ARGUMENTS_BEGIN = "<|tool_call_argument_begin|>"


class KimiK2Parser(SectionCalls):
    """The model's own id goes to the client unchanged, since the model counts its calls over the
    whole conversation. An id that it repeats within one answer is replaced: results refer to their
    calls by id.
    """

    sections = (
        (_SECTION_BEGIN, _SECTION_END),
        ("<|tool_call_section_begin|>", "<|tool_call_section_end|>"),
    )
    call_begin = _CALL_BEGIN
    inner_marks = (_ARGUMENTS_BEGIN, _CALL_END)
    _own_id = ""
    _spare_index = 0  # only grows, so that each of many repeated ids costs the same

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
        self._name = self._meant(found[1] if found else own_id.removeprefix("functions."))
        yield from self._reader.space()
        yield from self._expect(_ARGUMENTS_BEGIN)
        yield from self._reader.space()
        yield from self._json_arguments(_CALL_END)
        yield from self._end(_CALL_END)

    def _meant(self, name: str) -> str:
        """The tool that the model means. A number alone is the call's, and means the only tool."""
        return next(iter(self._tools)) if name.isdigit() and len(self._tools) == 1 else name


def _numbered_arguments(schema: Any) -> Format:
    """The number of the call, which the model counts over the conversation, then the arguments."""
    return sequence(regex("[0-9]{1,4}"), const_string(_ARGUMENTS_BEGIN), json_format(schema))


def kimi_id(name: str, index: int) -> str:
    """The model's own form, which its template renders back."""
    return f"functions.{name}:{index}"


KIMI_K2 = ToolFamily(
    parser_type=KimiK2Parser,
    call_syntax=CallSyntax(
        head=_SECTION_BEGIN,
        begin=f"{_CALL_BEGIN}functions.",
        middle=":",
        arguments=_numbered_arguments,
        end=_CALL_END,
        foot=_SECTION_END,
    ),
    new_id=kimi_id,
    template_marks=((_SECTION_BEGIN,),),
)
