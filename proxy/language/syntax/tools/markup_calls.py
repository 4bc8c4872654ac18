"""The base of families that write a call like XML: a name, then keys with values as bare text."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from proxy.language.syntax.parsing.delimiters import Delimiters
from proxy.language.syntax.parsing.reader import PassOn, Steps
from proxy.language.syntax.tools.literal import CutOff, escaped
from proxy.language.syntax.tools.section_calls import SectionCalls
from proxy.language.syntax.tools.typed_values import typed, types_of

_KEY = re.compile(r"[^<>\"\n]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Markup:
    """The marks of a call: name `name_end` (key_begin key key_end value value_end)* `end`.

    value_stops: marks that end a value whose own end is missing.
    """

    name_end: str
    key_begin: str
    key_end: str
    value_begin: str = ""
    value_end: str
    value_stops: tuple[str, ...] = ()
    end: str
    # Whether the syntax puts each value on lines of its own.
    has_lines: bool = False

    @property
    def written(self) -> tuple[str, ...]:
        """Every mark of the syntax."""
        marks = (self.name_end, self.key_begin, self.key_end, self.value_begin, self.value_end)
        return tuple(filter(None, (*marks, self.end)))

    @property
    def marks(self) -> Delimiters:
        line = [f"\n{self.value_end}"] if self.has_lines else []
        return Delimiters([self.value_end, *line, *self.value_stops])


class MarkupCalls(SectionCalls):
    """Strings stream; other values wait until they are complete, and get their type from the
    tool's schema.
    """

    markup: ClassVar[Markup]
    _marks: ClassVar[Delimiters]

    @cached_property
    def _known_types(self) -> dict[tuple[str, str], frozenset[str]]:
        """By tool and key: a schema may be large, and a model may write a key many times."""
        return {}

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls._marks = cls.markup.marks
        cls.inner_marks = cls.markup.written

    def _call(self) -> Steps[None]:
        yield from self._gap()
        self._name = yield from self._whole_name()
        yield from self._expect(self.markup.name_end)
        yield from self._gap()
        while not (yield from self._ends()):
            key = yield from self._key()
            yield from self._value(key, self._types(key))
            self._end_argument()
            yield from self._gap()
        self._close_arguments()

    def _gap(self) -> Steps[None]:
        """What may stand between the elements."""
        yield from self._reader.space()

    def _ends(self) -> Steps[bool]:
        """Whether the call ends here. The section's end also ends it, and is not taken."""
        if (yield from self._reader.accept(self.markup.end)):
            return True
        for _, end in self.sections:
            if end and (yield from self._reader.look(len(end))) == end:
                return True
        return False

    def _key(self) -> Steps[str]:
        yield from self._expect(self.markup.key_begin, self.markup.end)
        key = (yield from self._reader.word(_KEY)).strip()
        yield from self._expect(self.markup.key_end)
        if self.markup.value_begin:
            yield from self._gap()
            yield from self._expect(self.markup.value_begin)
        return key

    def _value(self, key: str, types: frozenset[str]) -> Steps[None]:
        self._begin_argument(key)
        if self.markup.has_lines:
            yield from self._reader.accept("\n")
        if types == {"string"}:
            self._emit_arguments('"')
            yield from self._until_end(lambda text: self._emit_arguments(escaped(text)))
            self._emit_arguments('"')
        else:
            parts: list[str] = []
            yield from self._until_end(parts.append)
            self._emit_arguments(typed("".join(parts), types))

    def _until_end(self, pass_on: PassOn) -> Steps[None]:
        mark = yield from self._reader.until(self._marks, pass_on, leaves_partial=True)
        if not mark:
            raise CutOff
        if mark.endswith(self.markup.value_end):
            self._reader.take(len(mark))

    def _types(self, key: str) -> frozenset[str]:
        schema = self._tools.get(self._name, {})
        properties = schema.get("properties")
        if not isinstance(properties, Mapping) or key not in properties:
            return types_of(None)
        known = self._known_types.get((self._name, key))
        if known is None:
            known = self._known_types[self._name, key] = types_of(properties[key], schema)
        return known
