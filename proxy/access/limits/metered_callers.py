"""The meters of callers that were seen lately. Used by `request_limiter`."""

from __future__ import annotations

import time
from collections.abc import Callable

from proxy.access.limits.caller_meters import CallerMeters, meters_of
from proxy.domain.identity import Caller
from proxy.domain.usage import SpentSource

MOST = 10_000


class MeteredCallers:
    """clock: seconds since 1970."""

    def __init__(self, source: SpentSource, clock: Callable[[], float] = time.time) -> None:
        self._source = source
        self._clock = clock
        self._known: dict[tuple[str, str, str], CallerMeters] = {}

    async def meters(self, caller: Caller, model: str) -> CallerMeters:
        """model: its public name; empty for the limits that hold for every model."""
        name = (caller.tenant, caller.key_id, model)
        known = self._known.get(name)
        now_s = self._clock()
        if known is None or now_s >= known.ends_at_s or not known.is_of(caller):
            known = await meters_of(caller, model, self._source, now_s=now_s)
            if len(self._known) >= MOST:
                del self._known[next(iter(self._known))]
            self._known[name] = known
        return known
