"""Stop strings in an answer's text. Called by `output_parser`, and by `answer_text` without one."""

from __future__ import annotations

from collections.abc import Sequence

from proxy.language.syntax.automaton import ROOT, Automaton, automaton


class StopMatcher:
    """Passes text on up to the first stop string to be complete, which it swallows. Stop strings
    are found wherever the text is cut, and never leaked.

    includes_stop: passes that stop string on, too. stop: the one that was complete. is_on: whether
    it looks for stop strings. unsent: how many characters were pushed and not passed on.

    Of stop strings that end at the same place the longest counts, so the result does not depend
    on how the text is cut. Text that may be the start of a stop string is held back.
    """

    __slots__ = ("_automaton", "_held", "_includes_stop", "_node", "is_on", "stop", "unsent")

    def __init__(self, stops: Sequence[str], *, includes_stop: bool = False) -> None:
        marks = tuple(filter(None, stops))
        self._includes_stop = includes_stop
        self._automaton = automaton(marks) if marks else None
        self._node = ROOT
        self._held = ""
        self.stop: str | None = None
        self.is_on = True
        self.unsent = 0

    def push(self, text: str) -> str:
        """Text that is safe to send. Nothing comes after `stop`."""
        if self._automaton is None or not self.is_on:
            return text
        passed = "" if self.stop is not None else self._read(text, self._automaton)
        self.unsent += len(text) - len(passed)
        return passed

    def flush(self) -> str:
        """What was held back, when the text ends without a stop string."""
        held, self._held = self._held, ""
        return held

    def _read(self, text: str, automaton: Automaton) -> str:
        self._node, length = automaton.read(self._node, text)
        buffer = self._held + text[:length]
        if length := automaton.complete[self._node]:
            self.stop = buffer[-length:]
            self._held = ""
            return buffer if self._includes_stop else buffer[:-length]
        safe = len(buffer) - automaton.depth[self._node]
        self._held = buffer[safe:]
        return buffer[:safe]
