"""Ends one stream from outside: its endpoint drains, or a higher class needs its row."""

from __future__ import annotations

from collections.abc import Callable


class Interrupt:
    """Whoever reads the stream gets `error` in place of the next delta. The first error counts.

    The reader listens; an error that came before is told at once.
    """

    __slots__ = ("_listener", "error")

    def __init__(self) -> None:
        self.error: Exception | None = None
        self._listener: Callable[[], None] | None = None

    def fire(self, error: Exception) -> None:
        if self.error is None:
            self.error = error
            if self._listener is not None:
                self._listener()

    def listen(self, listener: Callable[[], None] | None) -> None:
        """None: nobody listens any more."""
        self._listener = listener
        if listener is not None and self.error is not None:
            listener()
