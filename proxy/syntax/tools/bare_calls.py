"""Families whose calls need no delimiter: a bracket anywhere in the text may begin one."""

from __future__ import annotations

import re
from typing import ClassVar

from triton_openai.proxy.syntax.parsing.delimiters import Delimiters
from triton_openai.proxy.syntax.parsing.reader import Steps
from triton_openai.proxy.syntax.tools.parser import ToolParser

_BLANKS = re.compile(r"\s+(?=\s)")
# What stands before a bracket that is a part of something else: code, a quotation, or JSON, where
# it follows a bracket, a comma behind a value, or the colon behind a key. A line begins anew.
_INSIDE = re.compile(
    r"""(?:[A-Za-z0-9_"'`)\]\\]|(?:[(\[{=]|["'}\]0-9][^\S\n]?,|["'][^\S\n]?:)[^\S\n]?)\Z"""
)
_SEEN_BEFORE = 4  # characters, which is as far as _INSIDE looks


class BareCalls(ToolParser):
    """A bare call must name a known tool, and break off as soon as it is clear that it is none."""

    # The characters that a bare call begins with.
    openings: ClassVar[str] = "{["
    weak_starts: ClassVar[tuple[str, ...]] = ("",)
    # The end of the text so far, of white space only the last.
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
            self._say(self._reader.take(1))
        else:
            yield from self._section("")

    @property
    def _may_promise(self) -> bool:
        is_known = not self._is_bare or not self._tools or self._name in self._tools
        return is_known and super()._may_promise

    def _section(self, start: str) -> Steps[None]:
        self._is_bare = start in self.weak_starts
        yield from super()._section(start)

    def _say(self, text: str) -> None:
        self._before = _BLANKS.sub("", self._before + text)[-_SEEN_BEFORE:]
        super()._say(text)
