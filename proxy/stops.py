"""Stop strings across chunk borders: found wherever the text is cut, and never leaked."""

from __future__ import annotations

from collections.abc import Sequence

from proxy.parsing.delimiters import Delimiters


class StopMatcher:
    """Passes text on up to the first stop string to be complete, which it swallows.

    includes_stop: passes that stop string on, too.

    Of stop strings that end at the same place the longest counts, so the result does not depend
    on how the text is cut. Text that may be the start of a stop string is held back.
    """

    __slots__ = ("_held", "_includes_stop", "_marks", "_stops", "is_stopped")

    def __init__(self, stops: Sequence[str], *, includes_stop: bool = False) -> None:
        self._includes_stop = includes_stop
        self._stops = tuple(stop for stop in stops if stop)
        self._marks = Delimiters(self._stops)
        self._held = ""
        self.is_stopped = False

    def push(self, text: str) -> str:
        """Text that is safe to send. Nothing comes after `is_stopped`."""
        if self.is_stopped:
            return ""
        if not self._stops:
            return text
        buffer = self._held + text
        if found := self._first_stop(buffer):
            end, start = found
            self.is_stopped = True
            self._held = ""
            return buffer[: end if self._includes_stop else start]
        safe = len(buffer) - self._marks.possible_start(buffer, 0)
        self._held = buffer[safe:]
        return buffer[:safe]

    def flush(self) -> str:
        """What was held back, when the text ends without a stop string."""
        held, self._held = self._held, ""
        return held

    def _first_stop(self, buffer: str) -> tuple[int, int] | None:
        """End and start of the stop string that ends first."""
        ends = [
            (start + len(stop), start) for stop in self._stops if (start := buffer.find(stop)) >= 0
        ]
        return min(ends) if ends else None
