"""Kimi K2: `<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{…}<|tool_call_end|>`."""

from __future__ import annotations

import re

from triton_openai.proxy.syntax.parsing.reader import Steps
from triton_openai.proxy.syntax.tools.call_writer import Tools
from triton_openai.proxy.syntax.tools.errors import CutOff
from triton_openai.proxy.syntax.tools.ids import NewId, kimi_id
from triton_openai.proxy.syntax.tools.section_calls import SectionCalls

_ID = re.compile(r"[\w.\-/:]*")
_OWN_ID = re.compile(r"(?:functions\.)?(.+):[0-9]+")
_SECTION_BEGIN, _SECTION_END = "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"
_CALL_END = "<|tool_call_end|>"


class KimiK2Parser(SectionCalls):
    """The model's own id goes to the client as it is: the model counts over the conversation.

    An id that the model repeats in one answer is replaced: results name their calls by it.
    """

    sections = (
        (_SECTION_BEGIN, _SECTION_END),
        ("<|tool_call_section_begin|>", "<|tool_call_section_end|>"),
    )
    call_begin = "<|tool_call_begin|>"
    inner_marks = ("<|tool_call_argument_begin|>", _CALL_END)
    _own_id = ""

    def __init__(
        self, tools: Tools | None = None, new_id: NewId = kimi_id, *, only_known: bool = False
    ) -> None:
        super().__init__(tools, new_id, only_known=only_known)
        self._used_ids: set[str] = set()
        self._spare_index = 0  # only grows, so that many repeated ids cost no more each

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
        yield from self._expect("<|tool_call_argument_begin|>")
        yield from self._reader.space()
        yield from self._json_arguments(_CALL_END)
        yield from self._end(_CALL_END)

    def _meant(self, name: str) -> str:
        """A number alone is the call's: it says which tool only where there is one."""
        return next(iter(self._tools)) if name.isdigit() and len(self._tools) == 1 else name
