"""Counts the endpoints of each pool by their state, for telemetry. Run by `pool_set`."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from proxy import background
from proxy.pools.endpoint_counter import EndpointCounter

if TYPE_CHECKING:
    from proxy.pools.pool import Pool

COUNT_EVERY_S = 1.0


@asynccontextmanager
async def counted_states(
    pools: Mapping[str, Pool], counter: EndpointCounter
) -> AsyncIterator[None]:
    """Reports once a second until the body ends, and at its beginning."""
    counting = asyncio.create_task(_keep_counting(pools, counter))
    try:
        yield
    finally:
        await background.end([counting])


async def _keep_counting(pools: Mapping[str, Pool], counter: EndpointCounter) -> None:
    while True:
        for name, pool in pools.items():
            counter.counted(name, Counter(one.state for one in pool.endpoints.values()))
            await asyncio.sleep(0)  # other tasks run between two pools: each has up to 1,000
        await asyncio.sleep(COUNT_EVERY_S)
