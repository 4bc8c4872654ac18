"""A reader that parsers pull from while text is pushed into it.

A grammar is a generator (`Steps`) that yields when it needs more text. Every decision depends on
characters, never on where a piece ended, so the result is the same for every cut of the text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator
from typing import TypeVar

from proxy.language.syntax.parsing.delimiters import Delimiters

T = TypeVar("T")
Steps = Generator[None, None, T]
PassOn = Callable[[str], object]

_SPACE = re.compile(r"[ \t\r\n]*")


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

    def accept_end(self, literal: str) -> Steps[bool]:
        """Takes `literal` if it comes next, or the part of it that the text ends with."""
        if (yield from self.accept(literal)):
            return True
        rest = self._buffer[self._at :] if self._is_closed else ""
        if rest and literal.startswith(rest):
            self.take(len(rest))
            return True
        return False

    def until(
        self, delimiters: Delimiters, pass_on: PassOn, *, leaves_partial: bool = False
    ) -> Steps[str]:
        """Takes text up to the first delimiter, which it returns but does not take.

        At the end of the text it returns "". The begin of a delimiter there is text, unless
        `leaves_partial`.
        """
        while True:
            found = delimiters.first(self._buffer, self._at)
            if found:
                self._pass(found.start(), pass_on)
                return found.group()
            held = delimiters.possible_start(self._buffer, self._at)
            if self._is_closed and not leaves_partial:
                held = 0
            self._pass(len(self._buffer) - held, pass_on)
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
        return (yield from self.word(_SPACE))

    def _pass(self, end: int, pass_on: PassOn) -> None:
        if end > self._at:
            pass_on(self._take_to(end))

    def _take_to(self, end: int) -> str:
        text = self._buffer[self._at : end]
        self._at += len(text)
        if self._record is not None:
            self._record.append(text)
        return text
