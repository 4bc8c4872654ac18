"""What runs for one endpoint, from the day its source names it until it is gone. For its pool."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import httpx
import structlog

from proxy import background
from proxy.pools.endpoint import Clock, Endpoint
from proxy.pools.endpoint_watch import EndpointWatch
from proxy.pools.engine_load import EVERY_S, LoadReader

logger = structlog.get_logger(__name__)

LEAVES_AFTER_S = 3600.0  # an endpoint that left closes when its streams have ended, or then
LOOK_EVERY_S = 0.25


class EndpointLife:
    """metrics_port: of an endpoint whose address names none; None: its load is not read.

    has_choice: whether the pool has other endpoints: only then, or where engines have rows, their
    load matters. gone: called before the connection closes.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        watch: EndpointWatch,
        *,
        clock: Clock,
        metrics_port: int | None,
        has_choice: Callable[[], bool],
        gone: Callable[[Endpoint], None],
    ) -> None:
        self._endpoint = endpoint
        self._watch = watch
        self._clock = clock
        self._metrics_port = endpoint.address.metrics_port or metrics_port
        self._has_choice = has_choice
        self._gone = gone

    async def run(self) -> None:
        """Keeps the connection open until the endpoint has left and its streams have ended."""
        endpoint = self._endpoint
        async with endpoint.connection:
            tasks = [asyncio.create_task(self._watch.run())]
            if self._metrics_port is not None:
                tasks.append(asyncio.create_task(self._read_load(self._metrics_port)))
            try:
                await self._has_left()
                self._gone(endpoint)
            finally:
                await background.end(tasks)
        logger.info("endpoint is gone", pool=endpoint.pool, endpoint=endpoint.name)

    async def _has_left(self) -> None:
        since, endpoint = None, self._endpoint
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            since = (since or self._clock()) if endpoint.is_leaving else None
            if since is not None and (
                not endpoint.streams or self._clock() - since > LEAVES_AFTER_S
            ):
                return

    async def _read_load(self, port: int) -> None:
        url = f"http://{self._endpoint.name.rpartition(':')[0]}:{port}/metrics"
        async with httpx.AsyncClient(trust_env=False) as client:
            reader = LoadReader(url, client, clock=self._clock)
            while True:
                if self._has_choice() or self._endpoint.has_rows:
                    await reader.read()
                    self._endpoint.set_load(reader)
                await asyncio.sleep(EVERY_S)
