"""gpt-oss: the channel `analysis` is reasoning, `final` and preambles are text."""

from __future__ import annotations

from proxy.language.syntax.parsing.delimiters import Delimiters
from proxy.language.syntax.parsing.reader import Steps
from proxy.language.syntax.reasoning.parser import ReasoningFamily, ReasoningParser

_MESSAGE = "<|message|>"
_ENDS = ("<|end|>", "<|call|>", "<|return|>")
_HEADS = ("<|start|>", "<|channel|>")
_HEAD_MARKS = Delimiters([_MESSAGE, "<|start|>", *_ENDS])
_BODY_MARKS = Delimiters([*_HEADS, *_ENDS])


class HarmonyParser(ReasoningParser):
    """Each message has a header and a body. Calls, whose header names a recipient, pass unchanged
    to the tool parser if there is one.
    """

    starts = ("<|channel|>analysis<|message|>",)
    ends = _ENDS
    before_answer = "<|channel|>final<|message|>"
    closing = f"<|end|><|start|>assistant{before_answer}"
    inner_marks = _HEADS

    def _parse(self) -> Steps[None]:
        if self._is_inside:
            yield from self._reasoning()
        elif (yield from self._reader.look(4)) == " to=":
            yield from self._message("")
        while mark := (yield from self._reader.until(_BODY_MARKS, self._emit_text)):
            if mark in _ENDS:
                self._reader.take(len(mark))
            else:
                yield from self._message(mark)

    def _message(self, start: str) -> Steps[None]:
        yield from self._reader.accept(start)
        parts = [start]
        mark = yield from self._reader.until(_HEAD_MARKS, parts.append)
        head = "".join(parts)
        is_call = "to=" in head and bool(self._tool_starts)
        if mark != _MESSAGE:
            # Cut off, or not a message: of the headers only a call's is kept at the end.
            self._emit_text(head if mark or is_call else "")
            return
        self._reader.take(len(mark))
        if is_call:
            self._emit_text(head + _MESSAGE)
            yield from self._call_body()
        elif "analysis" in head:
            yield from self._reasoning()

    def _call_body(self) -> Steps[None]:
        mark = yield from self._reader.until(_BODY_MARKS, self._emit_text)
        if mark in _ENDS:
            self._emit_text(self._reader.take(len(mark)))

    def _reasoning(self) -> Steps[None]:
        self.is_thinking = True
        self._begin_reasoning()
        mark = yield from self._reader.until(_BODY_MARKS, self._emit_reasoning, leaves_partial=True)
        self.is_thinking = False
        if mark in _ENDS:
            self._reader.take(len(mark))
        elif not mark:
            self._emit_reasoning(self._reader.rest())


HARMONY = ReasoningFamily(parser_type=HarmonyParser, template_marks=(("<|channel|>", "analysis"),))
