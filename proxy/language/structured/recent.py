"""Results that are likely to be needed again, within a bound of memory."""

from __future__ import annotations

import hashlib
import marshal
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

from cachetools import LRUCache

Key = TypeVar("Key")
Value = TypeVar("Value")
ENTRY_BYTES = 500  # of an entry itself: its key, and what the dictionary needs for it


class Recent(LRUCache[Key, Value]):
    """Forgets the least recently used values beyond `max_bytes`.

    Args:
        value_bytes: the size of a value, without its entry.
    """

    def __init__(
        self, max_bytes: int, value_bytes: Callable[[Value], int] = lambda value: 0
    ) -> None:
        super().__init__(max_bytes, getsizeof=lambda value: ENTRY_BYTES + value_bytes(value))

    def keep(self, key: Key, value: Value) -> None:
        """Unless the value alone is larger than all may be."""
        with suppress(ValueError):
            self[key] = value


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
