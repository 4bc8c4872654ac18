"""How many requests may run at once. One more is refused, never queued. Held by the service."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from proxy.domain.errors import RateLimited


class Concurrency:
    """`limit` None: as many as come."""

    def __init__(self, limit: int | None) -> None:
        self._limit = limit
        self.running = 0

    @asynccontextmanager
    async def permit(self) -> AsyncIterator[None]:
        """Lives as long as the request's stream.

        Raises:
            RateLimited: all permits are out.
        """
        if self._limit is not None and self.running >= self._limit:
            raise RateLimited(
                f"This server runs at most {self._limit} requests at once, and all of them are "
                "under way. Try again in a moment."
            )
        self.running += 1
        try:
            yield
        finally:
            self.running -= 1
