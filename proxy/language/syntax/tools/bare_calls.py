"""The base of families whose calls need no marks: any bracket in the text may begin a call."""

from __future__ import annotations

import re
from typing import ClassVar

from proxy.language.syntax.parsing.delimiters import Delimiters
from proxy.language.syntax.parsing.reader import Steps
from proxy.language.syntax.tools.parser import ToolParser

_BLANKS = re.compile(r"\s+(?=\s)")
# Text before a bracket that belongs to something else: to code, to a quotation, or to JSON, where
# it follows a bracket, a comma behind a value, or the colon behind a key. A new line ends all.
_INSIDE = re.compile(
    r"""(?:[A-Za-z0-9_"'`)\]\\]|(?:[(\[{=]|["'}\]0-9][^\S\n]?,|["'][^\S\n]?:)[^\S\n]?)\Z"""
)
_SEEN_BEFORE = 4  # characters that _INSIDE looks at


class BareCalls(ToolParser):
    """A bare call must name a known tool, and turns into text as soon as it breaks."""

    # The characters that a bare call begins with.
    openings: ClassVar[str] = "{["
    weak_starts: ClassVar[tuple[str, ...]] = ("",)
    # The end of the text so far, with each run of white space shortened to its last character.
    _before = ""

    def _parse(self) -> Steps[None]:
        apart = [start for start in self.starts if start[0] not in self.openings]
        marks = Delimiters([*apart, *self.openings])
        while mark := (yield from self._text(marks)):
            if mark in apart:
                yield from self._section(mark)
            else:
                yield from self._at_bracket()

    def _at_bracket(self) -> Steps[None]:
        for start in self.starts:
            if (yield from self._reader.look(len(start))) == start:
                yield from self._section(start)
                return
        if _INSIDE.search(self._before):
            self._emit_text(self._reader.take(1))
        else:
            yield from self._section("")

    @property
    def _may_start(self) -> bool:
        is_known = not self._is_bare or not self._tools or self._name in self._tools
        return is_known and super()._may_start

    def _section(self, start: str) -> Steps[None]:
        self._is_bare = start in self.weak_starts
        yield from super()._section(start)

    def _emit_text(self, text: str) -> None:
        self._before = _BLANKS.sub("", self._before + text)[-_SEEN_BEFORE:]
        super()._emit_text(text)
