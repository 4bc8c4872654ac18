"""What was found lately, to be known again."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)


class Recent(Generic[Key]):
    """A set that forgets the one which was asked for the longest time ago, beyond `most`."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._keys: OrderedDict[Key, None] = OrderedDict()

    def __contains__(self, key: Key) -> bool:
        is_known = key in self._keys
        if is_known:
            self._keys.move_to_end(key)
        return is_known

    def add(self, key: Key) -> None:
        self._keys[key] = None
        if len(self._keys) > self._most:
            self._keys.popitem(last=False)
