"""Idle tenants of one class that have had more than a new one begins with. For priority_class."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from itertools import count

from proxy.scheduling.service_order import Share


class Owing:
    """A heap of their counters when they were added. One that a refund has lowered since is found a
    little later.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, str, Share]] = []
        self._numbers = count()

    def add(self, tenant: str, share: Share) -> None:
        """It idles now. Nothing happens if it is here already."""
        if not share.is_remembered:
            share.is_remembered = True
            heapq.heappush(self._heap, (share.counter, next(self._numbers), tenant, share))

    def pop_served(self, least: float) -> Iterator[str]:
        """Those whose counters are no longer above that of a new tenant, `least`. Tenants that no
        longer idle are dropped, and added when they idle again.
        """
        while self._heap and self._heap[0][0] <= least:
            _, _, tenant, share = heapq.heappop(self._heap)
            share.is_remembered = False
            if share.is_idle and share.counter <= least:
                yield tenant
            elif share.is_idle:
                self.add(tenant, share)

    def rebuild(self) -> None:
        """After the counters were changed."""
        self._heap = [(share.counter, number, name, share) for _, number, name, share in self._heap]
        heapq.heapify(self._heap)
