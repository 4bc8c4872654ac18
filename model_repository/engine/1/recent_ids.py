"""What the engine remembers for a while: requests that were stopped before they came, or that have
ended, leases that are over, slow guides.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Hashable

KEEP_S = 60.0
KEEP_AT_MOST = 10_000


class RecentIds:
    """Forgets each id after `keep_s`, and the oldest ids when there are `most`."""

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        *,
        keep_s: float = KEEP_S,
        most: int = KEEP_AT_MOST,
    ) -> None:
        self._clock = clock
        self._keep_s = keep_s
        self._most = most
        self._expiry_by_id: OrderedDict[Hashable, float] = OrderedDict()

    def add(self, id_: Hashable) -> None:
        self._forget_old()
        self._expiry_by_id[id_] = self._clock() + self._keep_s

    def take(self, id_: Hashable) -> bool:
        """Whether the id is here; removes it."""
        expiry = self._expiry_by_id.pop(id_, None)
        return expiry is not None and expiry > self._clock()

    def has(self, id_: Hashable) -> bool:
        """Whether the id is here; keeps it, unlike `take`."""
        expiry = self._expiry_by_id.get(id_)
        return expiry is not None and expiry > self._clock()

    def _forget_old(self) -> None:
        now = self._clock()
        while self._expiry_by_id:
            id_, expiry = next(iter(self._expiry_by_id.items()))
            if expiry > now and len(self._expiry_by_id) < self._most:
                return
            del self._expiry_by_id[id_]
