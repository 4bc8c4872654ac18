"""Reads the sets of an EndpointSource one by one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager

from structlog.testing import capture_logs

from proxy.domain.endpoints import EndpointAddress, EndpointSource
from tests.doubles import clock

HANG_S = 300.0  # no test waits for it but one that fails


async def until(holds: Callable[[], bool]) -> None:
    """For what another thread or the log shows; pytest's timeout ends what never comes."""
    while not holds():  # noqa: ASYNC110 - no event tells it
        await asyncio.sleep(0.01)


class WatchedSource:
    """addresses() and endpoints() are the next set."""

    def __init__(self, source: EndpointSource) -> None:
        self.sets = source.watch()
        self._next: asyncio.Task[frozenset[EndpointAddress]] | None = None

    async def endpoints(self) -> frozenset[EndpointAddress]:
        if self._next is None:
            self._next = asyncio.ensure_future(self.sets.__anext__())
        await asyncio.wait([self._next], timeout=HANG_S)
        assert self._next.done(), "no set of endpoints came"
        found, self._next = self._next.result(), None
        return found

    async def addresses(self) -> list[str]:
        return sorted(each.address for each in await self.endpoints())

    def read_ahead(self) -> asyncio.Task[frozenset[EndpointAddress]]:
        """So that the source goes on while the test does something else."""
        self._next = asyncio.ensure_future(self.sets.__anext__())
        return self._next

    async def close(self) -> None:
        if self._next is not None:
            self._next.cancel()
            await asyncio.wait([self._next])


@asynccontextmanager
async def watched(source: EndpointSource) -> AsyncIterator[WatchedSource]:
    watching = WatchedSource(source)
    async with aclosing(watching.sets):
        try:
            yield watching
        finally:
            await watching.close()


def emitted(
    source: EndpointSource, seconds: float = 10_000
) -> tuple[list[tuple[float, set[EndpointAddress]]], list[dict]]:
    """The time and endpoints of all sets on a clock that jumps, and the log."""

    async def run() -> list[tuple[float, set[EndpointAddress]]]:
        now, found = asyncio.get_running_loop().time, []

        async def read() -> None:
            async for endpoints in source.watch():
                found.append((now(), set(endpoints)))

        reading = asyncio.ensure_future(read())
        await asyncio.wait([reading], timeout=seconds)
        assert not reading.done(), "a source never ends"
        reading.cancel()
        await asyncio.wait([reading])
        return found

    with capture_logs() as logs:
        return clock.run(run()), logs
