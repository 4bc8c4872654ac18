"""Ends one stream from outside: its endpoint drains, or a higher class needs its row."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum


class Cause(str, Enum):
    """Why an engine stream ended before its answer did.

    LOST: its endpoint died. STALLED: its endpoint sent nothing for too long. DRAINED: its endpoint
    gets no more streams. PREEMPTED: a higher class needed its row.
    """

    LOST = "lost"
    STALLED = "stalled"
    DRAINED = "drained"
    PREEMPTED = "preempted"


class Interrupt:
    """Whoever reads the stream gets `error` in place of the next delta. The first error counts.

    The reader listens; an error that came before is reported at once. endpoint: where the
    stream runs, set by the code that chose it; None before. can_move: another endpoint continues
    it without a difference.
    """

    __slots__ = ("_listener", "can_move", "endpoint", "error")

    def __init__(self, *, can_move: bool = True) -> None:
        self.can_move = can_move
        self.error: Exception | None = None
        self.endpoint: str | None = None
        self._listener: Callable[[Exception], None] | None = None

    def fire(self, error: Exception) -> None:
        if self.error is None:
            self.error = error
            if self._listener is not None:
                self._listener(error)

    def listen(self, listener: Callable[[Exception], None] | None) -> None:
        """None: nobody listens any more."""
        self._listener = listener
        if listener is not None and self.error is not None:
            listener(self.error)
