"""The frame of every tool-call parser: text, calls, and what happens when a call goes wrong."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

from proxy.domain.output import TextDelta
from proxy.domain.tool_events import ToolCallArguments, ToolCallStarted, ToolEvent
from proxy.parsing.delimiters import Delimiters
from proxy.parsing.outbox import Outbox
from proxy.parsing.reader import Reader, Steps
from proxy.tools.errors import Broken, CutOff
from proxy.tools.ids import NewId, openai_id

# name of a tool -> JSON Schema of its arguments
Tools = Mapping[str, Mapping[str, Any]]


class ToolParser(ABC):
    """`push` text, `flush` at the end; the events are the same however the text was cut.

    A call is promised (ToolCallStarted) when its name and the begin of its arguments are clear.
    One that breaks before is text; one that breaks later is closed to valid JSON, and what follows
    is text. White space between calls, or alone before the first, belongs to the syntax.

    Args:
        tools: schemas of the request's tools, by name; they type the values of XML-like families,
            and families without a delimiter of their own call nothing else.
        new_id: makes the id of a call.
    """

    # What opens a call or a section of calls; it also ends reasoning that was left open.
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
        self.calls = 0
        self.is_cut = False
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

    @abstractmethod
    def _parse(self) -> Steps[None]:
        """The family's grammar of a whole answer."""

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
        self._name, self._is_promised, self._is_open = "", False, False
        self._reader.record()
        try:
            return (yield from call)
        except Broken as error:
            self._say(self._reader.recorded() or error.lost)
        except CutOff:
            self._cut_off()
        finally:
            self._reader.recorded()
        return False

    def _cut_off(self) -> None:
        if self._is_promised or self._may_promise:
            self._promise()
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
        call_id = self._new_id(self._name, index)
        self._outbox.event(ToolCallStarted(index=index, id=call_id, name=self._name))

    def _argue(self, fragment: str) -> None:
        index = self.calls - 1
        self._outbox.delta(
            index, lambda text: ToolCallArguments(index=index, fragment=text), fragment
        )

    def _done(self) -> None:
        """The arguments are complete. What is taken from here on is not lost if it breaks."""
        self._is_open = False
        self._reader.record()

    def _say(self, text: str) -> None:
        """Text for the client; blank text waits until a call follows it or more text does."""
        if self._blank is not None:
            self._blank.append(text)
            if not text or text.isspace():
                return
            text, self._blank = "".join(self._blank), None
        self._outbox.delta("text", TextDelta, text)
