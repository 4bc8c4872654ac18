"""The base of families that put marks around each call, and around all of them."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

from proxy.language.syntax.parsing.reader import Steps
from proxy.language.syntax.tools.parser import ToolParser


class SectionCalls(ToolParser):
    """Section begin, call begin, the call, call begin, …, section end; the section may be missing.

    A family implements `_call`, which reads from behind the call's begin to behind its end.
    """

    call_begin: ClassVar[str] = ""

    def __init_subclass__(cls) -> None:
        cls.starts = (*(start for start, _ in cls.sections), cls.call_begin)

    def _first(self, start: str) -> Steps[bool]:
        yield from self._reader.accept(start)
        if start != self.call_begin:
            yield from self._reader.space()
            yield from self._expect(self.call_begin)
        yield from self._call()
        return True

    def _next(self, start: str) -> Steps[bool]:
        gap = yield from self._reader.space()
        if (yield from self._reader.accept(self.call_begin)):
            yield from self._call()
            return True
        ends = dict(self.sections)
        forgotten = next(iter(ends.values()), "")  # some models write the end without the begin
        yield from self._end(ends.get(start, forgotten), gap)
        return False

    @abstractmethod
    def _call(self) -> Steps[None]:
        """One call with its end."""
