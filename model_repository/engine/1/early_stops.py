"""Ids of requests that end on arrival: stopped already, or of a lease that is over."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable

KEEP_S = 60.0
KEEP_AT_MOST = 10_000


class EarlyStops:
    """Request ids that are to be ended on arrival, kept for a minute and bounded in number."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._expiry_by_id: OrderedDict[str, float] = OrderedDict()

    def add(self, request_id: str) -> None:
        self._forget_old()
        self._expiry_by_id[request_id] = self._clock() + KEEP_S

    def take(self, request_id: str) -> bool:
        """Whether the request was stopped already; it is forgotten by this."""
        expiry = self._expiry_by_id.pop(request_id, None)
        return expiry is not None and expiry > self._clock()

    def has(self, request_id: str) -> bool:
        """Whether the id is known. Unlike `take`, this keeps it."""
        expiry = self._expiry_by_id.get(request_id)
        return expiry is not None and expiry > self._clock()

    def _forget_old(self) -> None:
        now = self._clock()
        while self._expiry_by_id:
            request_id, expiry = next(iter(self._expiry_by_id.items()))
            if expiry > now and len(self._expiry_by_id) < KEEP_AT_MOST:
                return
            del self._expiry_by_id[request_id]
