"""Numbered slots behind a concurrency limit: of one process, or shared by several through a file.

Used by `concurrency`.
"""

from __future__ import annotations

import fcntl
import random
from collections import deque
from pathlib import Path
from typing import Protocol


class PermitSlots(Protocol):
    """`take` returns a free slot's number, or None if all are taken."""

    def take(self) -> int | None: ...

    def give_back(self, slot: int) -> None: ...


class ProcessSlots:
    """Slots of this process alone."""

    def __init__(self, count: int) -> None:
        self._free = deque(range(count))

    def take(self) -> int | None:
        return self._free.popleft() if self._free else None

    def give_back(self, slot: int) -> None:
        self._free.append(slot)


class FileSlots:
    """Slots shared by processes: each is a lock on one byte of the file.

    The kernel releases the locks of a process that dies.
    """

    def __init__(self, count: int, file: Path) -> None:
        self._file = file.open("ab")
        # Slots that this process does not hold, in random order: processes then rarely try the
        # same one.
        self._others = deque(random.sample(range(count), count))

    def __del__(self) -> None:
        self._file.close()  # releases all locks of this process on it

    def take(self) -> int | None:
        for _ in range(len(self._others)):
            slot = self._others.popleft()
            try:
                fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, slot)
            except (BlockingIOError, PermissionError):
                self._others.append(slot)
            else:
                return slot
        return None

    def give_back(self, slot: int) -> None:
        fcntl.lockf(self._file, fcntl.LOCK_UN, 1, slot)
        self._others.append(slot)
