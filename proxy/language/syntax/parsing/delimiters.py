"""Finds the marks of a parser's syntax in a stream of text, whole ones and begun ones.

For a few marks of ours; `automaton` is for a caller's many strings.
"""

from __future__ import annotations

import re
from collections.abc import Sequence


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

    def possible_start(self, text: str, start: int) -> int:
        """The length of the longest end of `text[start:]` that begins a mark."""
        at = max(start, len(text) - self._longest + 1)
        while found := self._begin.search(text, at):
            tail = text[found.start() :]
            if any(len(tail) < len(mark) and mark.startswith(tail) for mark in self._marks):
                return len(tail)
            at = found.start() + 1
        return 0
