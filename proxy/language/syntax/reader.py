"""Finds the marks of a parser's syntax in a stream of text, whole ones and begun ones.

For a few marks of ours; `automaton` is for a caller's many strings.
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Hashable, Sequence
from functools import lru_cache
from typing import Generic, TypeVar


class Delimiters:
    """A set of marks. Where several begin at the same place, the longest counts.

    `first` gives the same for every cut of the text only if a mark that is contained in another one
    stands at its end.
    """

    __slots__ = ("_begin", "_longest", "_marks", "_pattern")

    def __init__(self, marks: Sequence[str]) -> None:
        known = sorted({mark for mark in marks if mark}, key=len, reverse=True)
        begins = "".join(sorted({mark[0] for mark in known}))
        self._pattern = re.compile("|".join(map(re.escape, known)) if known else r"(?!)")
        self._begin = re.compile(f"[{re.escape(begins)}]" if known else r"(?!)")
        self._longest = len(known[0]) if known else 0
        self._marks = known

    def first(self, text: str, start: int) -> re.Match[str] | None:
        """The first mark in `text` at or after `start`."""
        return self._pattern.search(text, start)

    def removed_from(self, text: str) -> str:
        """The text without its marks."""
        return self._pattern.sub("", text)

    def possible_start(self, text: str, start: int) -> int:
        """The length of the longest end of `text[start:]` that begins a mark."""
        at = max(start, len(text) - self._longest + 1)
        while found := self._begin.search(text, at):
            tail = text[found.start() :]
            if any(len(tail) < len(mark) and mark.startswith(tail) for mark in self._marks):
                return len(tail)
            at = found.start() + 1
        return 0


@lru_cache(maxsize=256)
def delimiters(marks: tuple[str, ...]) -> Delimiters:
    """A family's: the same for all of its parsers."""
    return Delimiters(marks)


T = TypeVar("T")
Steps = Generator[None, None, T]
PassOn = Callable[[str], object]

SPACE = re.compile(r"[ \t\r\n]*")
_MOST_GAP = 256  # characters between two marks, and the second mark


class Reader:
    """Holds only undecided text: at most a delimiter's length between pushes."""

    __slots__ = ("_at", "_buffer", "_is_closed", "_record")

    def __init__(self) -> None:
        self._buffer = ""
        self._at = 0
        self._is_closed = False
        self._record: list[str] | None = None

    def feed(self, text: str) -> None:
        self._buffer = self._buffer[self._at :] + text
        self._at = 0

    def close(self) -> None:
        """No more text will come."""
        self._is_closed = True

    @property
    def has_more(self) -> bool:
        return self._at < len(self._buffer)

    @property
    def pending(self) -> int:
        """How many characters were fed and not taken."""
        return len(self._buffer) - self._at

    def record(self) -> None:
        """Keeps the text that is taken from here on, in case it must be emitted after all."""
        self._record = []

    def recorded(self) -> str:
        """The text taken since `record`; recording ends."""
        parts, self._record = self._record or [], None
        return "".join(parts)

    def take(self, length: int) -> str:
        """Takes characters that `look` has returned before."""
        return self._take_to(self._at + length)

    def rest(self) -> str:
        """Takes all text that has been fed."""
        return self._take_to(len(self._buffer))

    def look(self, length: int) -> Steps[str]:
        """The next characters, without taking them; fewer than `length` only at the text's end."""
        while len(self._buffer) - self._at < length and not self._is_closed:
            yield
        return self._buffer[self._at : self._at + length]

    def peek(self) -> Steps[str]:
        """The next character, without taking it; "" at the end of the text."""
        return (yield from self.look(1))

    def accept(self, literal: str) -> Steps[bool]:
        """Takes `literal` if it comes next; waits only while it still may."""
        while True:
            if self._buffer.startswith(literal, self._at):
                self._take_to(self._at + len(literal))
                return True
            have = self._buffer[self._at : self._at + len(literal)]
            if self._is_closed or not literal.startswith(have):
                return False
            yield

    def may_end_in(self, literal: str) -> bool:
        """Whether the text has ended, and what is left of it is empty or begins `literal`."""
        return self._is_closed and literal.startswith(self._buffer[self._at :])

    def ends_at(self, offset: int) -> bool:
        """Whether the text ends `offset` characters further on."""
        return self._is_closed and self._at + offset >= len(self._buffer)

    def accept_end(self, literal: str) -> Steps[bool]:
        """Takes `literal` if it comes next, or the part of it that the text ends with."""
        if (yield from self.accept(literal)):
            return True
        rest = self._buffer[self._at :] if self._is_closed else ""
        if rest and literal.startswith(rest):
            self.take(len(rest))
            return True
        return False

    def find(
        self, pattern: re.Pattern[str], most: int, offset: int = 0
    ) -> Steps[re.Match[str] | None]:
        """The first match within `most` characters, `offset` further on, without taking them; None
        if they, or the text, end without one. The end of the text counts as a line break.
        """
        while True:
            text = self._buffer[self._at + offset : self._at + offset + most]
            found = pattern.search(f"{text}\n" if self._is_closed else text)
            if found or self._is_closed or len(text) == most:
                return found
            yield

    def ahead(self, offset: int, run: re.Pattern[str], most: int) -> Steps[str]:
        """The longest match of `run`, a starred class, `offset` characters further on; at most
        `most` characters, and none of them are taken.
        """
        while True:
            text = self._buffer[self._at + offset : self._at + offset + most]
            found = run.match(text)
            length = found.end() if found else 0
            if length < len(text) or len(text) == most or self._is_closed:
                return text[:length]
            yield

    def follows(
        self, offset: int, marks: Sequence[str], gap: re.Pattern[str] = SPACE
    ) -> Steps[str | None]:
        """The one of `marks` that comes `offset` characters further on, behind white space; "" if
        the text ends there or in one of them, None if something else comes. Takes nothing.
        """
        while True:
            text = self._buffer[self._at + offset : self._at + offset + _MOST_GAP]
            blank = gap.match(text)
            rest = text[blank.end() if blank else 0 :]
            for mark in marks:
                if rest.startswith(mark):
                    return mark
            may_follow = not rest or any(mark.startswith(rest) for mark in marks)
            if not may_follow or len(text) == _MOST_GAP:
                return None
            if self._is_closed:
                return ""
            yield

    def until(
        self,
        delimiters: Delimiters,
        pass_on: PassOn,
        *,
        leaves_partial: bool = False,
        most: float = math.inf,
    ) -> Steps[str]:
        """Takes text up to the first delimiter, which it returns but does not take.

        At the end of the text it returns "", as after `most` characters without a delimiter. The
        begin of a delimiter at the end of the text is text, unless `leaves_partial`.
        """
        while True:
            found = delimiters.first(self._buffer, self._at)
            end = len(self._buffer) - delimiters.possible_start(self._buffer, self._at)
            if self._is_closed and (found or not leaves_partial):
                end = len(self._buffer)
            # a longer delimiter may begin where this one does, or before it
            is_first = found is not None and found.start() < end
            if found is not None and is_first:
                end = found.start()
            if end - self._at >= most:
                self._pass(self._at + int(most), pass_on)
                return ""
            most -= end - self._at
            self._pass(end, pass_on)
            if found is not None and is_first:
                return found.group()
            if self._is_closed:
                return ""
            yield

    def span(self, run: re.Pattern[str], pass_on: PassOn) -> Steps[None]:
        """Takes the longest match of `run`, which is a starred character class."""
        while True:
            match = run.match(self._buffer, self._at)
            if match:
                self._pass(match.end(), pass_on)
            if self._at < len(self._buffer) or self._is_closed:
                return
            yield

    def word(self, run: re.Pattern[str]) -> Steps[str]:
        """What `span` takes, as one string."""
        parts: list[str] = []
        yield from self.span(run, parts.append)
        return "".join(parts)

    def space(self) -> Steps[str]:
        """Takes white space."""
        return (yield from self.word(SPACE))

    def _pass(self, end: int, pass_on: PassOn) -> None:
        if end > self._at:
            pass_on(self._take_to(end))

    def _take_to(self, end: int) -> str:
        text = self._buffer[self._at : end]
        self._at += len(text)
        if self._record is not None:
            self._record.append(text)
        return text


class Stripped:
    """Passes text on without the white space at its ends: inside, it waits for what follows it."""

    def __init__(self, pass_on: PassOn) -> None:
        self._pass_on = pass_on
        self._blank: list[str] | None = None

    def __call__(self, text: str) -> None:
        if self._blank is None:
            text = text.lstrip()
            if not text:
                return
            self._blank = []
        kept = text.rstrip()
        if kept:
            self._pass_on("".join(self._blank) + kept)
            self._blank = [text[len(kept) :]]
        else:
            self._blank.append(text)


Event = TypeVar("Event")


class EventBuffer(Generic[Event]):
    """The events of one push, in order; neighbouring deltas of one kind become one event."""

    __slots__ = ("_build", "_events", "_kind", "_parts")

    def __init__(self) -> None:
        self._events: list[Event] = []
        self._kind: Hashable = None
        self._build: Callable[[str], Event] | None = None
        self._parts: list[str] = []

    def delta(self, kind: Hashable, build: Callable[[str], Event], text: str) -> None:
        """Adds text to the delta of `kind`, which `build` will make."""
        if not text:
            return
        if kind != self._kind:
            self._finish_delta()
            self._kind, self._build = kind, build
        self._parts.append(text)

    def event(self, event: Event) -> None:
        self._finish_delta()
        self._events.append(event)

    def take(self) -> list[Event]:
        """All events so far; the buffer is empty afterwards."""
        self._finish_delta()
        events, self._events = self._events, []
        return events

    def _finish_delta(self) -> None:
        if self._build is not None:
            self._events.append(self._build("".join(self._parts)))
        self._kind, self._build, self._parts = None, None, []


class PushParser(ABC, Generic[Event]):
    """`push` text, `flush` at the end; the events are the same however the text was cut."""

    def __init__(self) -> None:
        self._reader = Reader()
        self._events: EventBuffer[Event] = EventBuffer()
        self._steps: Steps[None] | None = self._parse()

    @abstractmethod
    def _parse(self) -> Steps[None]:
        """The grammar of a whole answer."""

    def push(self, text: str) -> list[Event]:
        self._reader.feed(text)
        return self._run()

    def flush(self) -> list[Event]:
        """The last events; nothing is pushed afterwards."""
        self._reader.close()
        return self._run()

    def _run(self) -> list[Event]:
        if self._steps is not None:
            try:
                next(self._steps)
            except StopIteration:
                self._steps = None
        return self._events.take()
