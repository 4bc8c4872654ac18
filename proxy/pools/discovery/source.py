"""What all sources of endpoints share: one loop reads them, bounds what they name, and logs."""

from __future__ import annotations

import asyncio
import math
import random
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing

import structlog

from proxy.domain.endpoints import EndpointAddress
from proxy.pools.discovery.source_url import MOST_ENDPOINTS

MOST_REASONS = 8  # logged in one outage
REASON_CHARS = 500
FIRST_S = 0.1
LONGEST_S = 10.0

logger = structlog.get_logger(__name__)


class GrowingPause:
    """Doubles from first_s to longest_s, less up to a half at random.

    It begins anew when twice longest_s passed between the end of one pause and the next one.
    """

    def __init__(self, first_s: float = FIRST_S, longest_s: float = LONGEST_S) -> None:
        self._first_s = first_s
        self._longest_s = longest_s
        self._next_s = first_s
        self._ended_at = -math.inf

    async def wait(self) -> None:
        loop = asyncio.get_running_loop()
        if loop.time() - self._ended_at > 2 * self._longest_s:
            self._next_s = self._first_s
        await asyncio.sleep(self._next_s * random.uniform(0.5, 1.0))
        self._next_s = min(2 * self._next_s, self._longest_s)
        self._ended_at = loop.time()


class Source(ABC):
    """Implements domain.endpoints.EndpointSource over `sets`.

    name: for the log. place: what is read now; an error is logged with it. problem: why endpoints
    of the last set are missing. pause: between two readings.
    """

    place = ""
    problem: str | None = None

    def __init__(self, name: str, pause: GrowingPause | None = None) -> None:
        self.name = name
        self.pause = pause or GrowingPause()
        self._last: frozenset[EndpointAddress] | None = None
        self._is_cut = False
        self._reasons: set[str] = set()  # logged in this outage

    @abstractmethod
    def sets(self) -> AsyncGenerator[Iterable[EndpointAddress], None]:
        """All endpoints, then all of them again from time to time.

        Raises whatever shows that they cannot be read. It is called again then, and when it ends.
        """

    async def watch(self) -> AsyncGenerator[frozenset[EndpointAddress], None]:
        while True:
            try:
                async with aclosing(self.sets()) as sets:
                    async for found in sets:
                        self._note(self.problem)
                        fresh = self._bounded(found)
                        if fresh != self._last:
                            self._last = fresh
                            yield fresh
            except Exception as error:  # whatever a server sends, the last endpoints remain
                self._note(f"{self.place}{str(error) or type(error).__name__}")
            await self.pause.wait()

    def _bounded(self, found: Iterable[EndpointAddress]) -> frozenset[EndpointAddress]:
        """Of more endpoints than MOST_ENDPOINTS, the first in the order of their addresses.

        Of an address with several metrics ports, the highest port counts.
        """
        ordered = sorted(found, key=lambda each: (each.address, each.metrics_port or 0))
        different = list({each.address: each for each in ordered}.values())
        was_cut, self._is_cut = self._is_cut, len(different) > MOST_ENDPOINTS
        if self._is_cut and not was_cut:
            logger.warning(
                "a pool has too many endpoints",
                source=self.name,
                found=len(different),
                kept=MOST_ENDPOINTS,
                advice="divide the pool: those beyond the bound get no streams",
            )
        return frozenset(different[:MOST_ENDPOINTS])

    def _note(self, problem: str | None) -> None:
        """Logs when an outage begins and ends, and further reasons in it, but none twice."""
        if problem is None:
            if self._reasons:
                self._reasons.clear()
                logger.info("endpoints can be found again", source=self.name)
            return
        reason = problem[:REASON_CHARS]
        if reason not in self._reasons and len(self._reasons) < MOST_REASONS:
            self._reasons.add(reason)
            logger.warning(
                "endpoints cannot be found",
                source=self.name,
                reason=reason,
                advice="look at the source; the last known endpoints are used until it answers",
            )


class StaticList(Source):
    def __init__(self, name: str, addresses: frozenset[EndpointAddress]) -> None:
        super().__init__(name)
        self._addresses = addresses

    async def sets(self) -> AsyncGenerator[frozenset[EndpointAddress], None]:
        yield self._addresses
        await asyncio.Event().wait()
