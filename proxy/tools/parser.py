"""The frame of every tool-call parser: text, calls, and what happens when a call goes wrong."""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

from proxy.domain.events import TextDelta, ToolCallArguments, ToolCallStarted, ToolEvent
from proxy.parsing.delimiters import Delimiters
from proxy.parsing.outbox import Outbox
from proxy.parsing.reader import Reader, Steps
from proxy.tools.errors import Broken, CutOff
from proxy.tools.ids import NewId, openai_id
from proxy.tools.literal import Literal

# name of a tool -> JSON Schema of its arguments
Tools = Mapping[str, Mapping[str, Any]]
NAME = re.compile(r"[\w.\-/]*")


class ToolParser(ABC):
    """`push` text, `flush` at the end; the events are the same however the text was cut.

    A call is promised (ToolCallStarted) when its name and the begin of its arguments are clear.
    One that breaks before is text; one that breaks later is closed to valid JSON, `has_broken`
    says so, and what follows is text. White space between calls, or alone before the first,
    belongs to the syntax.

    Args:
        tools: schemas of the request's tools, by name; they type the values of XML-like families,
            and families without a delimiter of their own call nothing else.
        new_id: makes the id of a call.
    """

    # Around one call or several: (start, end), no end where the calls end by themselves.
    sections: ClassVar[tuple[tuple[str, str], ...]] = ()
    # What opens a call or a section; it also ends reasoning that was left open.
    starts: ClassVar[tuple[str, ...]] = ()
    # Whether a call has no delimiter of its own, so that only a known name makes it one.
    _is_bare = False

    def __init__(self, tools: Tools | None = None, new_id: NewId = openai_id) -> None:
        self._tools: Tools = tools or {}
        self._new_id = new_id
        self._reader = Reader()
        self._outbox: Outbox[ToolEvent] = Outbox()
        self._blank: list[str] | None = []
        self._name = ""
        self._is_promised = False
        self._is_open = False
        self._members = 0
        self.calls = 0
        self.is_cut = False
        self.has_broken = False
        self._steps: Steps[None] | None = self._parse()

    def push(self, text: str) -> list[ToolEvent]:
        self._reader.feed(text)
        return self._run()

    def flush(self) -> list[ToolEvent]:
        """The rest. A call that the end cuts off stays as far as it got, and `is_cut` says so."""
        self._reader.close()
        events = self._run()
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

    def _run(self) -> list[ToolEvent]:
        if self._steps is not None:
            try:
                next(self._steps)
            except StopIteration:
                self._steps = None
        return self._outbox.taken()

    def _text(self, marks: Delimiters) -> Steps[str]:
        """Passes text on up to the next mark, which it leaves and names; "" at the end."""
        return (yield from self._reader.until(marks, self._say))

    def _attempt(self, call: Steps[bool]) -> Steps[bool]:
        """Reads one call with what stands before it.

        Returns:
            What `call` says: whether another may follow directly.
        """
        self._name, self._is_promised, self._is_open, self._members = "", False, False, 0
        self._reader.record()
        try:
            return (yield from call)
        except Broken as error:
            self.has_broken = self.has_broken or self._is_open
            if self._is_open and self._members:
                self._argue("}")
            self._say(self._reader.recorded() or error.lost)
        except CutOff:
            self._cut_off()
        finally:
            self._reader.recorded()
        return False

    def _cut_off(self) -> None:
        if self._is_promised or self._may_promise:
            self._promise()
            self._reader.rest()  # half a mark
            self.is_cut = self._is_open
        else:
            self._say(self._reader.recorded())

    @property
    def _may_promise(self) -> bool:
        is_known = not self._is_bare or not self._tools or self._name in self._tools
        return bool(self._name) and is_known

    def _promise(self) -> None:
        """The call to `_name` starts, if it has not yet.

        Raises:
            Broken: there is no name, or none that may be called so.
        """
        if self._is_promised:
            return
        if not self._may_promise:
            raise Broken
        self._is_promised = self._is_open = True
        self._reader.recorded()
        self._blank = []
        index, self.calls = self.calls, self.calls + 1
        self._outbox.event(ToolCallStarted(index=index, id=self._id(index), name=self._name))

    def _id(self, index: int) -> str:
        return self._new_id(self._name, index)

    def _argue(self, fragment: str) -> None:
        index = self.calls - 1
        self._outbox.delta(
            index, lambda text: ToolCallArguments(index=index, fragment=text), fragment
        )

    def _done(self) -> None:
        """The arguments are complete. What is taken from here on is not lost if it breaks."""
        self._is_open = False
        self._reader.record()

    def _expect(self, mark: str, *others: str) -> Steps[None]:
        """Takes `mark`.

        Raises:
            Broken: something else comes.
            CutOff: the text ended, and could have gone on with it or one of the others.
        """
        if not (yield from self._reader.accept(mark)):
            is_cut = any(map(self._reader.may_end_in, (mark, *others)))
            raise CutOff if is_cut else Broken

    def _whole_name(self) -> Steps[str]:
        """The name that comes next, "" for none; its end must be in sight."""
        name = yield from self._reader.word(NAME)
        if not (yield from self._reader.peek()):
            raise CutOff
        return name

    def _json_arguments(self) -> Steps[None]:
        """Arguments that stand as a JSON object, streamed."""
        char = yield from self._reader.peek()
        if not char:
            raise CutOff
        if char != "{":
            raise Broken
        self._promise()
        yield from Literal(self._reader, self._argue).read()
        self._done()

    def _member(self, key: str) -> None:
        """Begins an argument, for families that do not write JSON; its value is next."""
        self._promise()
        self._reader.recorded()
        self._argue(f"{', ' if self._members else '{'}{json.dumps(key, ensure_ascii=False)}: ")
        self._members += 1

    def _member_done(self) -> None:
        """The value is complete: what is taken from here on is not lost if it breaks."""
        self._reader.record()

    def _members_done(self) -> None:
        self._promise()
        self._argue("}" if self._members else "{}")
        self._done()

    def _end(self, mark: str, gap: str = "") -> Steps[None]:
        """Takes white space and `mark`; without the mark, the gap is text."""
        gap += yield from self._reader.space()
        if not mark or not (yield from self._reader.accept_end(mark)):
            self._say(gap)

    def _say(self, text: str) -> None:
        """Text for the client; blank text waits until a call follows it or more text does."""
        if self._blank is not None:
            self._blank.append(text)
            if not text or text.isspace():
                return
            text, self._blank = "".join(self._blank), None
        self._outbox.delta("text", TextDelta, text)
