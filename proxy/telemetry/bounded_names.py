"""Which of the names that callers bring may be values of a label: the first so many.

Every value makes series that stay until the proxy stops, so that their number needs a bound.
"""

from __future__ import annotations

OTHER = "other"  # the value for all further names


class BoundedNames:
    """The first `most` names."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: set[str] = set()

    def admits(self, name: str) -> bool:
        if name not in self._known and len(self._known) < self._most:
            self._known.add(name)
        return name in self._known
