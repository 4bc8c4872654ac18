"""What every parser of pushed text is: a grammar over a reader, and the events it gives."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Generic, TypeVar

from triton_openai.proxy.syntax.parsing.outbox import Outbox
from triton_openai.proxy.syntax.parsing.reader import Reader, Steps

Event = TypeVar("Event")


class PushParser(ABC, Generic[Event]):
    """`push` text, `flush` at the end; the events are the same however the text was cut."""

    def __init__(self) -> None:
        self._reader = Reader()
        self._outbox: Outbox[Event] = Outbox()
        self._steps: Steps[None] | None = self._parse()

    @abstractmethod
    def _parse(self) -> Steps[None]:
        """The grammar of a whole answer."""

    def push(self, text: str) -> list[Event]:
        self._reader.feed(text)
        return self._run()

    def flush(self) -> list[Event]:
        """The rest; nothing is pushed after it."""
        self._reader.close()
        return self._run()

    def _run(self) -> list[Event]:
        if self._steps is not None:
            try:
                next(self._steps)
            except StopIteration:
                self._steps = None
        return self._outbox.taken()
