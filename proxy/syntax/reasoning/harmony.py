"""gpt-oss: channel `analysis` is thought, `final` and preambles are text, calls pass untouched."""

from __future__ import annotations

from triton_openai.proxy.syntax.parsing.delimiters import Delimiters
from triton_openai.proxy.syntax.parsing.reader import Steps
from triton_openai.proxy.syntax.reasoning.parser import ReasoningParser

_MESSAGE = "<|message|>"
_ENDS = ("<|end|>", "<|call|>", "<|return|>")
_HEADS = ("<|start|>", "<|channel|>")
_HEAD_MARKS = Delimiters([_MESSAGE, "<|start|>", *_ENDS])
_BODY_MARKS = Delimiters([*_HEADS, *_ENDS])


class HarmonyParser(ReasoningParser):
    """Messages of a header and a body; a tool parser, if there is one, reads those with a
    recipient."""

    starts = ("<|channel|>analysis<|message|>",)
    ends = _ENDS
    before_answer = "<|channel|>final<|message|>"
    closing = f"<|end|><|start|>assistant{before_answer}"
    inner_marks = _HEADS

    def _parse(self) -> Steps[None]:
        if self._is_inside:
            yield from self._thought()
        elif (yield from self._reader.look(4)) == " to=":
            yield from self._message("")
        while mark := (yield from self._reader.until(_BODY_MARKS, self._say)):
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
            # Cut off, or no message: only a call's header is worth something.
            self._say(head if mark or is_call else "")
            return
        self._reader.take(len(mark))
        if is_call:
            self._say(head + _MESSAGE)
            yield from self._call_body()
        elif "analysis" in head:
            yield from self._thought()

    def _call_body(self) -> Steps[None]:
        mark = yield from self._reader.until(_BODY_MARKS, self._say)
        if mark in _ENDS:
            self._say(self._reader.take(len(mark)))

    def _thought(self) -> Steps[None]:
        self.is_thinking = True
        self._begin_thought()
        mark = yield from self._reader.until(_BODY_MARKS, self._think, leaves_half=True)
        self.is_thinking = False
        if mark in _ENDS:
            self._reader.take(len(mark))
        elif not mark:
            self._think(self._reader.rest())
