"""Pythonic models: `[f(city="Paris"), g(x=1)]`."""

from __future__ import annotations

import re

from triton_openai.proxy.syntax.parsing.reader import Steps
from triton_openai.proxy.syntax.tools.bare_calls import BareCalls
from triton_openai.proxy.syntax.tools.errors import Broken, CutOff
from triton_openai.proxy.syntax.tools.literal import Literal

_NAME = re.compile(r"[\w.]*")
_KEYWORD = re.compile(r"\w*")


class PythonicParser(BareCalls):
    """A list of calls with keyword arguments, each a literal."""

    openings = "["

    def _first(self, start: str) -> Steps[bool]:
        yield from self._reader.accept(start)
        yield from self._reader.space()
        if not (yield from self._reader.accept("[")):
            raise Broken
        yield from self._reader.space()
        yield from self._call()
        return True

    def _next(self, start: str) -> Steps[bool]:
        gap = yield from self._reader.space()
        if (yield from self._reader.accept(",")):
            yield from self._reader.space()
            yield from self._call()
            return True
        if (yield from self._reader.accept("]")):
            gap = ""
        yield from self._end(dict(self.sections).get(start, ""), gap)
        return False

    def _call(self) -> Steps[None]:
        name = yield from self._reader.word(_NAME)
        if not name or not (yield from self._reader.accept("(")):
            raise Broken
        self._name = name
        yield from self._reader.space()
        while not (yield from self._reader.accept(")")):
            yield from self._keyword()
            yield from self._comma()
        self._members_done()

    def _keyword(self) -> Steps[None]:
        key = yield from self._reader.word(_KEYWORD)
        yield from self._reader.space()
        if not (yield from self._reader.peek()):
            raise CutOff
        if not key or not (yield from self._reader.accept("=")):
            raise Broken
        self._member(key)
        yield from self._reader.space()
        yield from Literal(self._reader, self._argue).read()
        self._member_done()

    def _comma(self) -> Steps[None]:
        yield from self._reader.space()
        if (yield from self._reader.accept(",")):
            yield from self._reader.space()
            return
        char = yield from self._reader.peek()
        if not char:
            raise CutOff
        if char != ")":
            raise Broken
