"""Families that write calls as JSON objects: `{"name": …, "arguments": {…}}`, alone or in a list.

Keys come in any order; arguments may be a string that holds JSON; other keys are passed over.
"""

from __future__ import annotations

from typing import ClassVar

from proxy.parsing.delimiters import Delimiters
from proxy.parsing.reader import Steps
from proxy.tools.errors import Broken
from proxy.tools.literal import Literal, literal_in, string
from proxy.tools.parser import ToolParser

_ARGUMENTS = ("arguments", "parameters", "args")
_QUOTES = "\"'"


class CallObjects(ToolParser):
    """A start, an object or a list of objects, an end."""

    # (start, end); no end where the calls end by themselves
    sections: ClassVar[tuple[tuple[str, str], ...]] = ()

    def __init_subclass__(cls) -> None:
        cls.starts = tuple(start for start, _ in cls.sections)

    def _parse(self) -> Steps[None]:
        marks = Delimiters(self.starts)
        while start := (yield from self._text(marks)):
            yield from self._section(start)

    def _section(self, start: str) -> Steps[None]:
        end = dict(self.sections).get(start, "")
        more = yield from self._attempt(self._first(start))
        while more:
            more = yield from self._attempt(self._next(end))

    def _first(self, start: str) -> Steps[bool]:
        yield from self._reader.accept(start)
        yield from self._lead_in()
        yield from self._reader.accept("[")
        yield from self._reader.space()
        yield from self._object()
        return True

    def _lead_in(self) -> Steps[None]:
        """What may stand between the start and the calls."""
        yield from self._reader.space()

    def _next(self, end: str) -> Steps[bool]:
        """Another call, or the end of the section."""
        gap = yield from self._reader.space()
        for separator in (",", ";"):
            if (yield from self._reader.accept(separator)):
                yield from self._reader.space()
                yield from self._object()
                return True
        if (yield from self._reader.peek()) == "{":
            yield from self._object()
            return True
        if (yield from self._reader.accept("]")):
            gap = yield from self._reader.space()
        if not end or not (yield from self._reader.accept_end(end)):
            self._say(gap)
        return False

    def _object(self) -> Steps[None]:
        """One call."""
        if not (yield from self._reader.accept("{")):
            raise Broken
        yield from self._reader.space()
        waiting: list[str] = []
        while not (yield from self._reader.accept("}")):
            key = yield from self._key()
            if key == "name":
                self._name = yield from self._string()
            elif key in _ARGUMENTS:
                waiting += yield from self._arguments()
            elif self._is_bare and key not in ("type", "id", "function", "index"):
                raise Broken
            else:
                yield from Literal(self._reader, _drop).read()
            yield from self._comma()
        if not self._is_promised:
            self._call_with("".join(waiting) or "{}")
        self._done()

    def _key(self) -> Steps[str]:
        key = yield from self._string()
        yield from self._reader.space()
        if not (yield from self._reader.accept(":")):
            raise Broken
        yield from self._reader.space()
        return key

    def _string(self) -> Steps[str]:
        char = yield from self._reader.peek()
        if char and char in _QUOTES:
            return (yield from string(self._reader))
        raise Broken

    def _comma(self) -> Steps[None]:
        yield from self._reader.space()
        if (yield from self._reader.accept(",")):
            yield from self._reader.space()
        elif (yield from self._reader.peek()) != "}":
            raise Broken

    def _arguments(self) -> Steps[list[str]]:
        """Streams the arguments if the name is known, else returns them."""
        parts: list[str] = []
        char = yield from self._reader.peek()
        if char != "{":
            parts.append((yield from self._boxed_arguments()))
        elif self._name and not self._is_promised:
            self._call_with("")
            yield from Literal(self._reader, self._argue).read()
            self._done()
        else:
            yield from Literal(self._reader, parts.append).read()
        return parts

    def _boxed_arguments(self) -> Steps[str]:
        """Arguments as a string that holds JSON, or null."""
        if (yield from self._reader.accept("null")):
            return "{}"
        found = literal_in((yield from self._string()))
        if found is None or not found.startswith("{"):
            raise Broken
        return found

    def _call_with(self, arguments: str) -> None:
        self._promise()
        self._argue(arguments)


def _drop(text: str) -> None:
    """For values that nobody wants."""
