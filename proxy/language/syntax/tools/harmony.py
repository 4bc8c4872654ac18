"""gpt-oss: messages in channels, calls as `<|channel|>commentary to=functions.f …<|message|>{…}`.

The reasoning parser has taken the channel `analysis` out; here `final` and preambles are text.
"""

from __future__ import annotations

import re

from proxy.language.syntax.parsing.delimiters import Delimiters
from proxy.language.syntax.parsing.reader import Steps
from proxy.language.syntax.tools.call_syntax import CallSyntax
from proxy.language.syntax.tools.family import ToolFamily
from proxy.language.syntax.tools.literal import Broken, CutOff
from proxy.language.syntax.tools.parser import ToolParser

_MESSAGE = "<|message|>"
_ENDS = ("<|end|>", "<|call|>", "<|return|>")
_HEAD_MARKS = Delimiters([_MESSAGE, "<|start|>", *_ENDS])
_RECIPIENT = re.compile(r"to=([\w.\-]+)")


class HarmonyParser(ToolParser):
    """Headers may stand before or behind the channel: `assistant to=functions.f<|channel|>…`."""

    starts = ("<|start|>", "<|channel|>")
    inner_marks = (_MESSAGE, "<|constrain|>", *_ENDS)

    def _parse(self) -> Steps[None]:
        # The prompt ends with `<|start|>assistant`; a recipient may follow it at once.
        if (yield from self._reader.look(4)) == " to=":
            yield from self._section("")
        marks = Delimiters([*self.starts, *_ENDS])
        while mark := (yield from self._text(marks)):
            if mark in _ENDS:
                self._reader.take(len(mark))
            else:
                yield from self._section(mark)

    def _first(self, start: str) -> Steps[bool]:
        """A header, and the arguments if it names a function; any other message is text."""
        yield from self._reader.accept(start)
        head: list[str] = []
        mark = yield from self._reader.until(_HEAD_MARKS, head.append, leaves_partial=True)
        found = _RECIPIENT.search("".join(head)) if mark in ("", _MESSAGE) else None
        if not mark:
            raise CutOff
        if mark != _MESSAGE:
            raise Broken
        yield from self._reader.accept(_MESSAGE)
        if found:
            self._name = found[1].removeprefix("functions.")
            self._reader.record()  # the header is never text, even if no arguments follow
            yield from self._reader.space()
            yield from self._json_arguments(*_ENDS)
            yield from self._call_end()
        return False

    def _cut_off(self) -> None:
        """A call without arguments may end with its header: the token that ends it has no text."""
        if self._has_ended and self._may_start and not self._has_started:
            self._close_arguments()
        super()._cut_off()

    def _next(self, start: str) -> Steps[bool]:
        yield from ()
        return False

    def _call_end(self) -> Steps[None]:
        gap = yield from self._reader.space()
        for end in _ENDS:
            if (yield from self._reader.accept_end(end)):
                return
        self._emit_text(gap)


HARMONY = ToolFamily(
    parser_type=HarmonyParser,
    # The token that ends a call ends the answer, too, so it is not a part of the syntax.
    call_syntax=CallSyntax(
        begin="<|channel|>commentary to=functions.",
        middle=" <|constrain|>json<|message|>",
        end="",
        is_single=True,
    ),
    template_marks=(("<|channel|>", "commentary"),),
)
