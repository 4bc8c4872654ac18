"""How many requests may run at once. One more is refused, never queued. Held by the service."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from proxy.access.slots import OwnSlots, SharedSlots, Slots
from proxy.domain.errors import RateLimited


class Concurrency:
    """`limit` None: as many as come. `shared`: a file, for a limit of all processes together."""

    def __init__(self, limit: int | None, shared: Path | None = None) -> None:
        self._limit = limit
        self._slots = None if limit is None else _slots(limit, shared)
        self.running = 0  # in this process

    @asynccontextmanager
    async def permit(self) -> AsyncIterator[None]:
        """Lives as long as the request's stream.

        Raises:
            RateLimited: all permits are out.
        """
        slot = None if self._slots is None else self._slots.take()
        if self._slots is not None and slot is None:
            raise RateLimited(
                f"This server runs at most {self._limit} requests at once, and all of them are "
                "under way. Try again in a moment."
            )
        self.running += 1
        try:
            yield
        finally:
            self.running -= 1
            if self._slots is not None and slot is not None:
                self._slots.give_back(slot)


def _slots(limit: int, shared: Path | None) -> Slots:
    return OwnSlots(limit) if shared is None else SharedSlots(limit, shared)
