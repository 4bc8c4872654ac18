"""Marks in a stream of text: where the first one stands, and what may still become one."""

from __future__ import annotations

import re
from collections.abc import Sequence


class Delimiters:
    """A set of marks. Of marks that begin at the same place the longest counts.

    `first` is the same for every cut only if no mark stands inside another but at its end.
    """

    __slots__ = ("_longest", "_pattern", "_prefixes")

    def __init__(self, marks: Sequence[str]) -> None:
        known = sorted({mark for mark in marks if mark}, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, known)) if known else r"(?!)")
        self._prefixes = {mark[:n] for mark in known for n in range(1, len(mark))}
        self._longest = len(known[0]) if known else 0

    def first(self, text: str, start: int) -> re.Match[str] | None:
        """The first mark in `text` at or after `start`."""
        return self._pattern.search(text, start)

    def possible_start(self, text: str, start: int) -> int:
        """Length of the longest end of `text[start:]` that begins a mark."""
        for length in range(min(self._longest - 1, len(text) - start), 0, -1):
            if text[-length:] in self._prefixes:
                return length
        return 0
