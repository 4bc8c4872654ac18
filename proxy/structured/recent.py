"""Results that are likely to be needed again, within a bound of memory."""

from __future__ import annotations

import hashlib
import marshal
from collections import OrderedDict
from collections.abc import Hashable
from typing import Any, Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")
ENTRY_BYTES = 500  # of an entry itself: its key, and what the dictionary needs for it


class Recent(Generic[Key, Value]):
    """A mapping that forgets the least recently used values beyond `most_bytes`."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._bytes = 0
        self._values: OrderedDict[Key, tuple[Value, int]] = OrderedDict()

    def get(self, key: Key) -> Value | None:
        found = self._values.get(key)
        if found is None:
            return None
        self._values.move_to_end(key)
        return found[0]

    def put(self, key: Key, value: Value, size: int = 0) -> None:
        """`size`: of the value, in bytes."""
        self._bytes -= self._values.pop(key, (None, 0))[1]
        self._values[key] = value, ENTRY_BYTES + size
        self._bytes += ENTRY_BYTES + size
        while self._bytes > self._most_bytes:
            _, (_, freed) = self._values.popitem(last=False)
            self._bytes -= freed


def serialized(value: Any) -> bytes:
    """The same bytes for equal JSON values.

    marshal is several times faster than JSON. Its version 2 has no references, which would make
    the bytes depend on which strings are the same object.

    Raises:
        ValueError: there is something in it that JSON has no place for.
    """
    return marshal.dumps(value, 2)


def fingerprint(value: Any) -> bytes:
    """32 bytes that stand for a JSON value. Raises as `serialized`."""
    return hashlib.sha256(serialized(value)).digest()
