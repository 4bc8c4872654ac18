"""Families whose calls need no delimiter: they may begin where a line does."""

from __future__ import annotations

from typing import ClassVar

from proxy.parsing.delimiters import Delimiters
from proxy.parsing.reader import Steps
from proxy.tools.parser import ToolParser


class LineStart(ToolParser):
    """A bare call must name a known tool, and break off as soon as it is clear that it is none."""

    # The characters that a bare call begins with.
    openings: ClassVar[str] = "{["
    # Starts that say no more than a line's start does.
    weak_starts: ClassVar[tuple[str, ...]] = ("",)

    def _parse(self) -> Steps[None]:
        marks = Delimiters([*self.starts, *(f"\n{opening}" for opening in self.openings)])
        self._say((yield from self._reader.space()))
        yield from self._bare()
        while mark := (yield from self._text(marks)):
            if mark in self.starts:
                yield from self._section(mark)
            else:
                self._say(self._reader.take(1))
                yield from self._bare()

    def _bare(self) -> Steps[None]:
        char = yield from self._reader.peek()
        if char and char in self.openings:
            yield from self._section("")

    @property
    def _may_promise(self) -> bool:
        is_known = not self._is_bare or not self._tools or self._name in self._tools
        return is_known and super()._may_promise

    def _section(self, start: str) -> Steps[None]:
        self._is_bare = start in self.weak_starts
        yield from super()._section(start)
