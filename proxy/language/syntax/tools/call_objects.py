"""The base of families that write calls as JSON objects: `{"name": …, "arguments": {…}}`.

Keys come in any order, arguments may be a string that holds JSON, and other keys are ignored. Small
models imitate the tools' own descriptions: `function` instead of `name`, or around the whole call.
"""

from __future__ import annotations

from typing import ClassVar

from proxy.language.syntax.parsing.reader import Steps
from proxy.language.syntax.tools.literal import Broken, CutOff, Literal, literal_in, string
from proxy.language.syntax.tools.parser import NAME, ToolParser

_ARGUMENTS = ("arguments", "parameters", "args")
_QUOTES = "\"'"


class CallObjects(ToolParser):
    """A start, then one object, several, or a list of them, then an end."""

    lead_in: ClassVar[str] = ""  # what may stand between the start and the calls
    _is_list = False

    def __init_subclass__(cls) -> None:
        cls.starts = tuple(start for start, _ in cls.sections)

    def _first(self, start: str) -> Steps[bool]:
        yield from self._reader.accept(start)
        yield from self._reader.space()
        if self.lead_in and (yield from self._reader.accept(self.lead_in)):
            yield from self._reader.space()
        self._is_list = yield from self._reader.accept("[")
        yield from self._reader.space()
        yield from self._object()
        return True

    def _next(self, start: str) -> Steps[bool]:
        """Another call, or the end of the section."""
        gap = yield from self._reader.space()
        if (yield from self._reader.accept("," if self._is_list else ";")):
            yield from self._reader.space()
            yield from self._object()
            return True
        if not self._is_list and (yield from self._reader.peek()) == "{":
            yield from self._object()
            return True
        if self._is_list and (yield from self._reader.accept("]")):
            gap = ""
        yield from self._end(dict(self.sections).get(start, ""), gap)
        return False

    def _object(self) -> Steps[None]:
        """One call."""
        if not (yield from self._reader.accept("{")):
            raise Broken
        waiting = yield from self._entries()
        if not self._has_started:
            self._call_with("".join(waiting) or "{}")
        self._end_call()

    def _entries(self, *, is_inner: bool = False) -> Steps[list[str]]:
        """Reads to the end of the object. Returns the arguments that came before the name."""
        yield from self._reader.space()
        waiting: list[str] = []
        while not (yield from self._reader.accept("}")):
            key = yield from self._key()
            if key == "function" and not is_inner and (yield from self._reader.accept("{")):
                waiting += yield from self._entries(is_inner=True)
            elif key == "name" or (key == "function" and not self._name):
                self._name = yield from self._word()
            elif key in _ARGUMENTS:
                waiting += yield from self._arguments()
            elif self._is_bare and key not in ("type", "id", "function", "index"):
                raise Broken
            else:
                yield from Literal(self._reader, _drop).read()
            yield from self._comma()
        return waiting

    def _key(self) -> Steps[str]:
        key = yield from self._word()
        yield from self._reader.space()
        if not (yield from self._reader.accept(":")):
            raise Broken
        yield from self._reader.space()
        return key

    def _word(self) -> Steps[str]:
        """A key or a name. Only a quoted word, so that an object that is no call breaks at once."""
        quote = yield from self._reader.peek()
        if not quote:
            raise CutOff
        if quote not in _QUOTES:
            raise Broken
        self._reader.take(1)
        word = yield from self._reader.word(NAME)
        if not (yield from self._reader.peek()):
            raise CutOff
        if not (yield from self._reader.accept(quote)):
            raise Broken
        return word

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
        elif self._name and not self._has_started:
            self._call_with("")
            yield from Literal(self._reader, self._emit_arguments).read()
            self._end_call()
        else:
            yield from Literal(self._reader, parts.append).read()
        return parts

    def _boxed_arguments(self) -> Steps[str]:
        """Arguments as a string that holds JSON or is blank, or as null."""
        if (yield from self._reader.accept("null")):
            return "{}"
        text = yield from self._string()
        found = literal_in(text, is_strict=False) if text.strip() else "{}"
        if found is None or not found.startswith("{"):
            raise Broken
        return found

    def _call_with(self, arguments: str) -> None:
        self._start_call()
        self._emit_arguments(arguments)


def _drop(text: str) -> None:
    """Discards the values of other keys."""
