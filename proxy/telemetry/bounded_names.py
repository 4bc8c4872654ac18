"""Which of the names that callers bring may be values of a label: the first so many.

Every value makes series that stay until the proxy stops, so that their number needs a bound.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
from pathlib import Path
from typing import TextIO

OTHER = "other"  # the value for all further names


class BoundedNames:
    """The first `most` names. shared: a file of all processes, which then agree on them, and a
    process that is started again knows what the one before had.
    """

    def __init__(self, most: int, shared: Path | None = None) -> None:
        self._most = most
        self._shared = shared
        self._known: set[str] = set()

    def admits(self, name: str) -> bool:
        """Costs a look into a set, but for a new name while there is room."""
        if name in self._known:
            return True
        if len(self._known) >= self._most:
            return False
        if self._shared is None:
            self._known.add(name)
            return True
        with contextlib.suppress(OSError):  # on a full disk requests are answered all the same
            self._admit_for_all(self._shared, name)
        return name in self._known

    def _admit_for_all(self, shared: Path, name: str) -> None:
        with shared.open("a+", encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            self._known = _read(file)
            if name not in self._known and len(self._known) < self._most:
                file.write(f"{json.dumps(name)}\n")
                file.flush()
                self._known.add(name)


def _read(file: TextIO) -> set[str]:
    file.seek(0)
    return {json.loads(line) for line in file}
