"""The parts of a growing answer that are in memory, and the bounds on their bytes."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import islice

JOINED_PARTS = 64  # the most that a reader gets at once


class MemoryBudget:
    """The bytes of all recordings of one process."""

    def __init__(self, most: int) -> None:
        self.bytes = 0
        self.most = most


class PartWindow:
    """Parts are numbered from 0. begin: of the first that is still there; end: after the last."""

    def __init__(self, budget: MemoryBudget, most_bytes: int) -> None:
        self.bytes = 0
        self.begin = 0
        self._budget = budget
        self._most_bytes = most_bytes
        self._parts: deque[bytes] = deque()

    @property
    def end(self) -> int:
        return self.begin + len(self._parts)

    def has_room(self, more: int) -> bool:
        """One part always fits, whatever the other recordings hold."""
        if not self.bytes:
            return True
        fits = self.bytes + more < self._most_bytes
        return fits and self._budget.bytes + more < self._budget.most

    def append(self, part: bytes) -> None:
        self._parts.append(part)
        self._count(len(part))

    def drop_first(self) -> None:
        self.begin += 1
        self._count(-len(self._parts.popleft()))

    def clear(self) -> None:
        self.begin = self.end
        self._parts.clear()
        self._count(-self.bytes)

    def after(self, number: int) -> Sequence[bytes]:
        """Some parts from this one on."""
        at = number - self.begin
        if at == len(self._parts) - 1:
            return (self._parts[-1],)
        return list(islice(self._parts, at, at + JOINED_PARTS))

    def all(self) -> list[bytes]:
        return list(self._parts)

    def _count(self, more: int) -> None:
        self.bytes += more
        self._budget.bytes += more
