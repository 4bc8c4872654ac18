"""The arguments of custom tools' calls -> their input, plain text. Called by `output_parser`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from proxy.domain.events import ToolCallArguments, ToolCallStarted, ToolEvent
from proxy.language.syntax.call_syntax import INPUT
from proxy.language.syntax.reader import Delimiters, PushParser, Steps

_PLAIN = re.compile(r'[^"\\]*')
_ESCAPED = {**dict(zip("bfnrt", "\b\f\n\r\t", strict=True)), **{one: one for one in '"\\/'}}
_HEX = re.compile(r"[0-9a-fA-F]{4}")
_SECOND_HALF = re.compile(r"\\u[dD][c-fC-F][0-9a-fA-F]{2}")
_NO_MARKS = Delimiters([])
_ENTITIES = Delimiters(["&lt;", "&amp;"])
_REPLACEMENT = "\ufffd"  # of half a character


class CustomInputs:
    """Takes a parser's events in order.

    Arguments that are an object whose first member is the string `input` become that string. If
    more follows it, that follows the string as the model wrote it; other arguments become the input
    as they are, as JSON; no arguments are an empty input. An escape that is cut off is left out.

    Args:
        tools: names of custom tools, and whether their input is written as guides write it in
            markup (structured.escaped_grammar.IN_MARKUP).
    """

    def __init__(self, tools: Mapping[str, bool]) -> None:
        self._tools = tools
        self._open: _Input | None = None

    def decoded(self, events: Sequence[ToolEvent], *, is_last: bool = False) -> list[ToolEvent]:
        found: list[ToolEvent] = []
        for event in events:
            if isinstance(event, ToolCallArguments) and self._open is not None:
                found += self._open.push(event.fragment)
                continue
            found += self._ended()
            if isinstance(event, ToolCallStarted) and event.name in self._tools:
                self._open = _Input(event.index, is_in_markup=self._tools[event.name])
                event = replace(event, is_custom=True)
            found.append(event)
        return found + self._ended() if is_last else found

    def _ended(self) -> list[ToolEvent]:
        ended, self._open = self._open, None
        return [] if ended is None else [*ended.flush()]


class _Input(PushParser[ToolCallArguments]):
    """The input of one call."""

    def __init__(self, index: int, *, is_in_markup: bool) -> None:
        super().__init__()
        self._index = index
        self._is_in_markup = is_in_markup
        self._unsure = ""  # the end of the text, which may begin an entity

    def _parse(self) -> Steps[None]:
        self._reader.record()
        for mark in ("{", f'"{INPUT}"', ":", '"'):
            yield from self._reader.space()
            if not (yield from self._reader.accept(mark)):
                is_cut_off = self._reader.may_end_in(mark)
                begin = self._reader.recorded()
                is_empty = begin.strip() == "{" and (yield from self._reader.accept("}"))
                if not is_cut_off and not is_empty:
                    self._put(begin)
                    yield from self._reader.until(_NO_MARKS, self._put)
                return
        self._reader.recorded()
        if (yield from self._string()):
            self._put(self._unsure)
            gap = yield from self._reader.space()
            if not (yield from self._reader.accept("}")):
                self._put(gap)
                yield from self._reader.until(_NO_MARKS, self._put)

    def _string(self) -> Steps[bool]:
        """Reads to the end of the string. Returns whether it has one."""
        put = self._put_markup if self._is_in_markup else self._put
        while True:
            yield from self._reader.span(_PLAIN, put)
            pair = yield from self._reader.look(1)
            if pair == "\\":
                pair = yield from self._reader.look(2)
            if pair in ("", "\\"):
                return False
            self._reader.take(len(pair))
            if pair == '"':
                return True
            if pair != "\\u":
                put(_ESCAPED.get(pair[1], pair))
                continue
            digits = yield from self._reader.look(4)
            if len(digits) < 4:
                return False
            put((yield from self._character(self._reader.take(4))))

    def _character(self, digits: str) -> Steps[str]:
        """Of `\\u` and these digits, and of the second half of a character that follows."""
        if not _HEX.fullmatch(digits):
            return f"\\u{digits}"
        code = int(digits, 16)
        if 0xD800 <= code < 0xDC00:
            second = yield from self._reader.look(6)
            if _SECOND_HALF.fullmatch(second):
                self._reader.take(6)
                return chr(0x10000 + (code - 0xD800) * 0x400 + int(second[2:], 16) - 0xDC00)
            if len(second) < 6 and '"' not in second:
                return ""
        return _REPLACEMENT if 0xD800 <= code < 0xE000 else chr(code)

    def _put(self, text: str) -> None:
        self._events.delta(
            self._index, lambda whole: ToolCallArguments(index=self._index, fragment=whole), text
        )

    def _put_markup(self, text: str) -> None:
        text = self._unsure + text
        end = len(text) - _ENTITIES.possible_start(text, 0)
        self._unsure = text[end:]
        self._put(text[:end].replace("&lt;", "<").replace("&amp;", "&"))
