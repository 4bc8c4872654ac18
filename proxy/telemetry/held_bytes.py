"""A bound on the bytes of requests and answers that wait in memory to be written."""

from __future__ import annotations

from threading import Lock


class HeldBytes:
    """For any thread. most: in one process. bytes: that are held now."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.bytes, self._lock = 0, Lock()

    def hold(self, size: int) -> bool:
        """Whether so many bytes more may be held."""
        with self._lock:
            if self.bytes + size > self._most:
                return False
            self.bytes += size
            return True

    def give_back(self, size: int) -> None:
        with self._lock:
            self.bytes -= size
