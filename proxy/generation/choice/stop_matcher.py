"""Stop strings across chunk borders: found wherever the text is cut, and never leaked."""

from __future__ import annotations

from collections.abc import Sequence

from proxy.language.syntax.parsing.automaton import ROOT, automaton


class StopMatcher:
    """Passes text on up to the first stop string to be complete, which it swallows.

    includes_stop: passes that stop string on, too.

    Of stop strings that end at the same place the longest counts, so the result does not depend
    on how the text is cut. Text that may be the start of a stop string is held back.
    """

    __slots__ = ("_automaton", "_held", "_includes_stop", "_node", "is_stopped")

    def __init__(self, stops: Sequence[str], *, includes_stop: bool = False) -> None:
        marks = tuple(stop for stop in stops if stop)
        self._includes_stop = includes_stop
        self._automaton = automaton(marks) if marks else None
        self._node = ROOT
        self._held = ""
        self.is_stopped = False

    def push(self, text: str) -> str:
        """Text that is safe to send. Nothing comes after `is_stopped`."""
        if self.is_stopped:
            return ""
        if self._automaton is None:
            return text
        self._node, length = self._automaton.read(self._node, text)
        buffer = self._held + text[:length]
        if stop := self._automaton.complete[self._node]:
            self.is_stopped = True
            self._held = ""
            return buffer if self._includes_stop else buffer[:-stop]
        safe = len(buffer) - self._automaton.depth[self._node]
        self._held = buffer[safe:]
        return buffer[:safe]

    def flush(self) -> str:
        """What was held back, when the text ends without a stop string."""
        held, self._held = self._held, ""
        return held
