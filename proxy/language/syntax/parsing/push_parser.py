"""The base of every parser of pushed text: a grammar over a reader, and the events it emits."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from proxy.language.syntax.parsing.reader import Reader, Steps

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
