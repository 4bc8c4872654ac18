"""Numbered slots behind a concurrency limit that several processes share through a file.

Used by `concurrency`.
"""

from __future__ import annotations

import fcntl
import random
from pathlib import Path


class FileSlots:
    """Slots shared by processes: each is a lock on one byte of the file.

    The kernel releases the locks of a process that dies.
    """

    def __init__(self, count: int, file: Path) -> None:
        self._file = file.open("ab")
        self._count = count
        self._held: set[int] = set()  # by this process: its own locks do not exclude it
        self._next = random.randrange(count)  # processes then rarely try the same one

    def __del__(self) -> None:
        self._file.close()  # releases all locks of this process on it

    def take(self) -> int | None:
        """A free slot's number; None if all are taken."""
        for _ in range(self._count):
            slot, self._next = self._next, (self._next + 1) % self._count
            if slot in self._held:
                continue
            try:
                fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, slot)
            except (BlockingIOError, PermissionError):
                continue
            self._held.add(slot)
            return slot
        return None

    def give_back(self, slot: int) -> None:
        fcntl.lockf(self._file, fcntl.LOCK_UN, 1, slot)
        self._held.remove(slot)
