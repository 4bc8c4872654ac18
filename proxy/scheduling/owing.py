"""Idle tenants of one class that have had more than a new one begins with. For priority_class."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from itertools import count

from triton_openai.proxy.scheduling.service_order import Share


class Owing:
    """A heap, by the least counter of the others at which each stands as a new tenant does. One that
    a refund has lowered since is found a little later.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, str, Share]] = []
        self._numbers = count()

    def add(self, tenant: str, share: Share) -> None:
        """It idles now. Nothing happens if it is here already."""
        if not share.is_remembered:
            share.is_remembered = True
            heapq.heappush(self._heap, (share.settled_at, next(self._numbers), tenant, share))

    def pop_served(self, least: float) -> Iterator[str]:
        """Those that stand as a new tenant does, where `least` is the least counter of the others.
        Tenants that no longer idle are dropped, and added when they idle again.
        """
        while self._heap and self._heap[0][0] <= least:
            _, _, tenant, share = heapq.heappop(self._heap)
            share.is_remembered = False
            if share.is_idle and share.settled_at <= least:
                yield tenant
            elif share.is_idle:
                self.add(tenant, share)

    def rebuild(self) -> None:
        """After the counters were changed."""
        self._heap = [(each[3].settled_at, *each[1:]) for each in self._heap]
        heapq.heapify(self._heap)
