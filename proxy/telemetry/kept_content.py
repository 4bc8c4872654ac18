"""What may be kept of requests and answers, in the journal, in the log and in spans; and how many
bytes of them wait in memory to be written.
"""

from __future__ import annotations

from threading import Lock
from typing import Any

import orjson


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


def fields_of(body: bytes | str) -> dict[str, Any] | None:
    """The fields of a request's body; None: it is not a JSON object."""
    try:
        found = orjson.loads(body)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def may_be_kept(fields: dict[str, Any]) -> bool:
    """Whether the caller lets the request be kept: `store` is not false."""
    return fields.get("store") is not False
