"""The events of one push: neighbouring deltas of one kind become one."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Event = TypeVar("Event")


class Outbox(Generic[Event]):
    """Collects events in order; costs no more than the text it carries."""

    __slots__ = ("_build", "_events", "_kind", "_parts")

    def __init__(self) -> None:
        self._events: list[Event] = []
        self._kind: Hashable = None
        self._build: Callable[[str], Event] | None = None
        self._parts: list[str] = []

    def delta(self, kind: Hashable, build: Callable[[str], Event], text: str) -> None:
        """Adds text to the delta of `kind` that `build` will make."""
        if not text:
            return
        if kind != self._kind:
            self._finish()
            self._kind, self._build = kind, build
        self._parts.append(text)

    def event(self, event: Event) -> None:
        self._finish()
        self._events.append(event)

    def taken(self) -> list[Event]:
        """Everything so far; the outbox is empty again."""
        self._finish()
        events, self._events = self._events, []
        return events

    def _finish(self) -> None:
        if self._build is not None:
            self._events.append(self._build("".join(self._parts)))
        self._kind, self._build, self._parts = None, None, []
