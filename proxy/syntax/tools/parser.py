"""The frame of every tool-call parser: text, calls, and what happens when a call goes wrong."""

from __future__ import annotations

import re
from abc import abstractmethod
from typing import ClassVar

from triton_openai.proxy.domain.events import TextDelta, ToolEvent
from triton_openai.proxy.syntax.parsing.delimiters import Delimiters
from triton_openai.proxy.syntax.parsing.reader import Steps
from triton_openai.proxy.syntax.tools.call_writer import CallWriter, Tools
from triton_openai.proxy.syntax.tools.errors import Broken, CutOff
from triton_openai.proxy.syntax.tools.ids import NewId, openai_id
from triton_openai.proxy.syntax.tools.literal import Literal

NAME = re.compile(r"[\w.\-/]*")


class ToolParser(CallWriter):
    """`push` text, `flush` at the end; the events are the same however the text was cut.

    A call is promised (ToolCallStarted) when its name and the begin of its arguments are clear.
    One that breaks before is text; one that breaks later is closed to valid JSON, `has_broken`
    says so, and what follows is text. White space between calls, or alone before the first,
    belongs to the syntax.

    Args:
        tools: schemas of the request's tools, by name; they type the values of XML-like families.
            A call without a delimiter of its own must name one of them.
        new_id: makes the id of a call.
        only_known: what calls another tool than these is text.
    """

    # Around one call or several: (start, end), no end where the calls end by themselves.
    sections: ClassVar[tuple[tuple[str, str], ...]] = ()
    starts: ClassVar[tuple[str, ...]] = ()  # what opens a call or a section
    weak_starts: ClassVar[tuple[str, ...]] = ()  # those that text may have, too
    # Further marks of the syntax, where they may be special tokens.
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
        super().__init__(tools, new_id, only_known=only_known)
        self._has_ended = False
        self.is_cut = False
        self.has_broken = False

    @classmethod
    def marks(cls) -> tuple[str, ...]:
        """What may be special tokens of the model, which the parser must see."""
        ends = tuple(end for _, end in cls.sections if end)
        return (*cls.starts, *ends, *cls.inner_marks)

    @classmethod
    def clear_starts(cls) -> tuple[str, ...]:
        """Those that end reasoning which was left open."""
        return tuple(start for start in cls.starts if start not in cls.weak_starts)

    def flush(self, *, has_ended: bool = False) -> list[ToolEvent]:
        """The rest. A call that the end cuts off stays as far as it got, and `is_cut` says so.

        has_ended: the model ended its answer, by a token that has no text.
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
        """Passes text on up to the next mark, which it leaves and names; "" at the end."""
        return (yield from self._reader.until(marks, self._say))

    def _attempt(self, call: Steps[bool]) -> Steps[bool]:
        """Reads one call with what stands before it.

        Returns:
            What `call` says: whether another may follow directly.
        """
        self._begin_call()
        self._reader.record()
        try:
            return (yield from call)
        except Broken as error:
            self.has_broken = self.has_broken or self._is_open
            if self._is_open and self._members:
                self._argue("}")
            self._is_open = False
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

    def _json_arguments(self, *ends: str) -> Steps[None]:
        """Arguments that stand as a JSON object, streamed; none where one of `ends` is next."""
        char = yield from self._reader.peek()
        if char == "{":
            self._promise()
            yield from Literal(self._reader, self._argue).read()
            self._done()
            return
        for end in ends:
            if (yield from self._reader.look(len(end))) == end:
                self._members_done()
                return
        is_cut = not char or any(map(self._reader.may_end_in, ends))
        raise CutOff if is_cut else Broken

    def _end(self, mark: str, gap: str = "") -> Steps[None]:
        """Takes white space and `mark`; without the mark, the gap is text."""
        gap += yield from self._reader.space()
        if not mark or not (yield from self._reader.accept_end(mark)):
            self._say(gap)
