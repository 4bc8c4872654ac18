"""So many slots, of which each is taken once: in this process, or by all that share a file."""

from __future__ import annotations

import fcntl
import random
from collections import deque
from pathlib import Path
from typing import Protocol


class PermitSlots(Protocol):
    """`take` gives None where all are taken."""

    def take(self) -> int | None: ...

    def give_back(self, slot: int) -> None: ...


class ProcessSlots:
    """Of this process alone."""

    def __init__(self, count: int) -> None:
        self._free = deque(range(count))

    def take(self) -> int | None:
        return self._free.popleft() if self._free else None

    def give_back(self, slot: int) -> None:
        self._free.append(slot)


class FileSlots:
    """A slot is a lock on one byte of the file, which a process that dies gives back, too."""

    def __init__(self, count: int, file: Path) -> None:
        self._file = file.open("ab")
        # what this process does not hold; in an order of its own, so that few are tried
        self._others = deque(random.sample(range(count), count))

    def __del__(self) -> None:
        self._file.close()  # and with it all that it holds

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
