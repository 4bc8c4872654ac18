"""Ids that the engine remembers for a while: of stopped requests, and of leases that are over."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable

KEEP_S = 60.0
KEEP_AT_MOST = 10_000


class RecentIds:
    """Forgets each id after a minute, and the oldest ids when there are too many."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._expiry_by_id: OrderedDict[str, float] = OrderedDict()

    def add(self, id_: str) -> None:
        self._forget_old()
        self._expiry_by_id[id_] = self._clock() + KEEP_S

    def take(self, id_: str) -> bool:
        """Whether the id is here; removes it."""
        expiry = self._expiry_by_id.pop(id_, None)
        return expiry is not None and expiry > self._clock()

    def has(self, id_: str) -> bool:
        """Whether the id is here; keeps it, unlike `take`."""
        expiry = self._expiry_by_id.get(id_)
        return expiry is not None and expiry > self._clock()

    def _forget_old(self) -> None:
        now = self._clock()
        while self._expiry_by_id:
            id_, expiry = next(iter(self._expiry_by_id.items()))
            if expiry > now and len(self._expiry_by_id) < KEEP_AT_MOST:
                return
            del self._expiry_by_id[id_]
