"""The base of every tool-call parser: text, calls, and the handling of broken calls."""

from __future__ import annotations

import json
import re
import secrets
from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from proxy.domain.events import TextDelta, ToolCallArguments, ToolCallStarted, ToolEvent
from proxy.language.syntax.parsing.delimiters import Delimiters
from proxy.language.syntax.parsing.push_parser import PushParser
from proxy.language.syntax.parsing.reader import Steps
from proxy.language.syntax.tools.literal import Broken, CutOff, Literal

# name of a tool -> JSON Schema of its arguments
Tools = Mapping[str, Mapping[str, Any]]
# (name of the tool, index of the call) -> id
NewId = Callable[[str, int], str]
NAME = re.compile(r"[\w.\-/]*")


def openai_id(name: str, index: int) -> str:
    """`call_` and 24 hexadecimal digits."""
    return f"call_{secrets.token_hex(12)}"


class ToolParser(PushParser[ToolEvent]):
    """`push` text, `flush` at the end; the events are the same however the text was cut.

    A call starts (ToolCallStarted) when its name and the begin of its arguments are certain. If it
    breaks before, it is text. If it breaks later, its arguments are closed to valid JSON,
    `has_broken` becomes true, and the rest is text. White space between calls belongs to the
    syntax, and so does an answer's first white space if a call follows it. `calls` counts the
    calls that have started.

    Args:
        tools: schemas of the request's tools, by name; they type the values of XML-like families.
            A call without a delimiter of its own must name one of these tools.
        new_id: makes the id of a call.
        only_known: a call to any other tool is text.
    """

    # (start, end) around one call or several; the end is "" where the calls end by themselves.
    sections: ClassVar[tuple[tuple[str, str], ...]] = ()
    starts: ClassVar[tuple[str, ...]] = ()  # marks that open a call or a section
    weak_starts: ClassVar[tuple[str, ...]] = ()  # those that occur in text, too
    # Further marks of the syntax, in case they are special tokens.
    inner_marks: ClassVar[tuple[str, ...]] = ()
    # Whether the call has no delimiter of its own.
    _is_bare = False

    def __init__(
        self,
        tools: Tools | None = None,
        new_id: NewId = openai_id,
        *,
        only_known: bool = False,
    ) -> None:
        super().__init__()
        self._tools: Tools = tools or {}
        self._only_known = only_known
        self._new_id = new_id
        self._blank: list[str] | None = []
        self._has_ended = False
        self.calls = 0
        self.is_cut = False
        self.has_broken = False
        self._reset_call()

    def _reset_call(self) -> None:
        self._name = ""
        self._has_started = False
        self._is_open = False
        self._argument_count = 0

    @classmethod
    def marks(cls) -> tuple[str, ...]:
        """All marks of the syntax: special tokens among them must reach the parser as text."""
        ends = tuple(end for _, end in cls.sections if end)
        return (*cls.starts, *ends, *cls.inner_marks)

    @classmethod
    def clear_starts(cls) -> tuple[str, ...]:
        """The starts that end a reasoning which the model left open."""
        return tuple(start for start in cls.starts if start not in cls.weak_starts)

    def flush(self, *, has_ended: bool = False) -> list[ToolEvent]:
        """The last events. A call that the end cuts off stays incomplete; `is_cut` becomes true.

        has_ended: the model ended its answer itself, by a token that has no text.
        """
        self._has_ended = has_ended
        events = super().flush()
        if self._blank and not self.calls:
            events.append(TextDelta("".join(self._blank)))
        self._blank = None
        return events

    def _parse(self) -> Steps[None]:
        """The grammar of a whole answer."""
        marks = Delimiters(self.starts)
        while start := (yield from self._text(marks)):
            yield from self._section(start)

    def _section(self, start: str) -> Steps[None]:
        more = yield from self._attempt(self._first(start))
        while more:
            more = yield from self._attempt(self._next(start))

    @abstractmethod
    def _first(self, start: str) -> Steps[bool]:
        """From `start` to the end of the first call."""

    @abstractmethod
    def _next(self, start: str) -> Steps[bool]:
        """From the end of a call to the end of the next, or of the section: then False."""

    def _text(self, marks: Delimiters) -> Steps[str]:
        """Emits text up to the next mark, which it returns but does not take; "" at the end."""
        return (yield from self._reader.until(marks, self._emit_text))

    def _attempt(self, call: Steps[bool]) -> Steps[bool]:
        """Reads one call with the marks before it.

        Returns:
            The result of `call`: whether another call may follow directly.
        """
        self._reset_call()
        self._reader.record()
        try:
            return (yield from call)
        except Broken as error:
            self.has_broken = self.has_broken or self._is_open
            if self._is_open and self._argument_count:
                self._emit_arguments("}")
            self._is_open = False
            self._emit_text(self._reader.recorded() or error.lost)
        except CutOff:
            self._cut_off()
        finally:
            self._reader.recorded()
        return False

    def _cut_off(self) -> None:
        if self._has_started or self._may_start:
            self._start_call()
            self._reader.rest()  # the begin of a mark
            self.is_cut = self._is_open
        else:
            self._emit_text(self._reader.recorded())

    def _expect(self, mark: str, *others: str) -> Steps[None]:
        """Takes `mark`.

        Raises:
            Broken: something else comes.
            CutOff: the text ended where it, or one of the others, could have followed.
        """
        if not (yield from self._reader.accept(mark)):
            is_cut = any(map(self._reader.may_end_in, (mark, *others)))
            raise CutOff if is_cut else Broken

    def _whole_name(self) -> Steps[str]:
        """The name that comes next, "" for none; a character behind it must be there."""
        name = yield from self._reader.word(NAME)
        if not (yield from self._reader.peek()):
            raise CutOff
        return name

    def _json_arguments(self, *ends: str) -> Steps[None]:
        """Streams arguments that are a JSON object; one of `ends` instead means no arguments."""
        char = yield from self._reader.peek()
        if char == "{":
            self._start_call()
            yield from Literal(self._reader, self._emit_arguments).read()
            self._end_call()
            return
        for end in ends:
            if (yield from self._reader.look(len(end))) == end:
                self._close_arguments()
                return
        is_cut = not char or any(map(self._reader.may_end_in, ends))
        raise CutOff if is_cut else Broken

    def _end(self, mark: str, gap: str = "") -> Steps[None]:
        """Takes white space and `mark`; without the mark, the white space is text."""
        gap += yield from self._reader.space()
        if not mark or not (yield from self._reader.accept_end(mark)):
            self._emit_text(gap)

    @property
    def is_open(self) -> bool:
        """Whether the model is writing the arguments of a call."""
        return self._is_open

    @property
    def _may_start(self) -> bool:
        is_known = not self._only_known or not self._tools or self._name in self._tools
        return bool(self._name) and is_known

    def _start_call(self) -> None:
        """Starts the call to `_name`, if it has not started yet.

        Raises:
            Broken: there is no name, or no tool that has it.
        """
        if self._has_started:
            return
        if not self._may_start:
            raise Broken
        self._has_started = self._is_open = True
        self._reader.recorded()
        self._blank = []
        index, self.calls = self.calls, self.calls + 1
        self._events.event(ToolCallStarted(index=index, id=self._id(index), name=self._name))

    def _id(self, index: int) -> str:
        return self._new_id(self._name, index)

    def _emit_arguments(self, fragment: str) -> None:
        index = self.calls - 1
        self._events.delta(
            index, lambda text: ToolCallArguments(index=index, fragment=text), fragment
        )

    def _end_call(self) -> None:
        """The arguments are complete. Text taken from here on is emitted if the call breaks."""
        self._is_open = False
        self._reader.record()

    def _begin_argument(self, key: str) -> None:
        """Begins an argument, for families that do not write JSON; its value comes next."""
        self._start_call()
        self._reader.recorded()
        opening = ", " if self._argument_count else "{"
        self._emit_arguments(f"{opening}{json.dumps(key, ensure_ascii=False)}: ")
        self._argument_count += 1

    def _end_argument(self) -> None:
        """The value is complete. Text taken from here on is emitted if the call breaks."""
        self._reader.record()

    def _close_arguments(self) -> None:
        self._start_call()
        self._emit_arguments("}" if self._argument_count else "{}")
        self._end_call()

    def _emit_text(self, text: str) -> None:
        """Emits text for the client; blank text waits until a call or more text follows it."""
        if self._blank is not None:
            self._blank.append(text)
            if not text or text.isspace():
                return
            text, self._blank = "".join(self._blank), None
        self._events.delta("text", TextDelta, text)
