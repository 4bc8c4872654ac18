"""Kimi K2: `<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{…}<|tool_call_end|>`."""

from __future__ import annotations

import re

from proxy.parsing.reader import Steps
from proxy.tools.errors import CutOff
from proxy.tools.section_calls import SectionCalls

_ID = re.compile(r"[\w.\-/:]*")
_OWN_ID = re.compile(r"(?:functions\.)?(.+):[0-9]+")
_SECTION_BEGIN, _SECTION_END = "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"
_CALL_END = "<|tool_call_end|>"


class KimiK2Parser(SectionCalls):
    """The model's own id goes to the client as it is: the model counts over the conversation."""

    sections = (
        (_SECTION_BEGIN, _SECTION_END),
        ("<|tool_call_section_begin|>", "<|tool_call_section_end|>"),
    )
    call_begin = "<|tool_call_begin|>"
    inner_marks = ("<|tool_call_argument_begin|>", _CALL_END)
    _own_id = ""

    def _id(self, index: int) -> str:
        return self._own_id or super()._id(index)

    def _call(self) -> Steps[None]:
        yield from self._reader.space()
        own_id = yield from self._reader.word(_ID)
        if not (yield from self._reader.peek()):
            raise CutOff
        found = _OWN_ID.fullmatch(own_id)
        self._own_id = own_id if found else ""
        self._name = self._meant(found[1] if found else own_id.removeprefix("functions."))
        yield from self._reader.space()
        yield from self._expect("<|tool_call_argument_begin|>")
        yield from self._reader.space()
        yield from self._json_arguments(_CALL_END)
        yield from self._end(_CALL_END)

    def _meant(self, name: str) -> str:
        """A number alone is the call's: it says which tool only where there is one."""
        return next(iter(self._tools)) if name.isdigit() and len(self._tools) == 1 else name
