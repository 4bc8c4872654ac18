"""The arguments of custom tools' calls -> their input, plain text. Called by `output_parser`."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from proxy.domain.events import ToolCallArguments, ToolCallStarted, ToolEvent
from proxy.language.syntax.call_syntax import INPUT
from proxy.language.syntax.reader import Delimiters, PushParser, Steps

_PLAIN = re.compile(r'[^"\\]*')
_ESCAPE = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\[^u]"
)
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
            if (yield from self._reader.accept('"')):
                return True
            pair = yield from self._reader.look(2)
            found = _ESCAPE.match((yield from self._reader.look(12)) if pair == "\\u" else pair)
            if found is None:  # the text ended
                return False
            self._reader.take(found.end())
            text = str(json.loads(f'"{found[0]}"'))
            put(_REPLACEMENT if "\ud800" <= text <= "\udfff" else text)

    def _put(self, text: str) -> None:
        self._events.delta(
            self._index, lambda whole: ToolCallArguments(index=self._index, fragment=whole), text
        )

    def _put_markup(self, text: str) -> None:
        text = self._unsure + text
        end = len(text) - _ENTITIES.possible_start(text, 0)
        self._unsure = text[end:]
        self._put(text[:end].replace("&lt;", "<").replace("&amp;", "&"))
