"""Asks one endpoint's Triton for its state and load until the endpoint is gone. Run by a pool."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

import httpx
import structlog

from proxy import background
from proxy.domain.engine import NotReady
from proxy.domain.model import LoadedModel
from proxy.pools.endpoint import Clock, Endpoint
from proxy.pools.engine_load import EVERY_S, LoadReader

CHECK_EVERY_S = 0.5
CHECKS_PER_RELOAD = 60  # behind a load balancer the next check may reach another build
LEAVES_AFTER_S = 3600.0  # an endpoint that left closes when its streams have ended, or then
LOOK_EVERY_S = 0.25

Interned = Callable[[LoadedModel], LoadedModel]


class EndpointWatch:
    """interned: equal models -> the one object that stands for all of them.

    returned: called when the endpoint is ready and was not before.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        interned: Interned,
        clock: Clock,
        returned: Callable[[Endpoint], None],
    ) -> None:
        self._endpoint = endpoint
        self._interned = interned
        self._clock = clock
        self._returned = returned
        self._index: frozenset[str] | None = None
        self._until_reload = 0

    async def run(self) -> None:
        """Until cancelled."""
        look_now = self._endpoint.look_now
        while True:
            look_now.clear()
            await self.check()
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(look_now.wait(), CHECK_EVERY_S)
            if look_now.is_set():  # a Triton that just died is gone for a moment longer
                await asyncio.sleep(CHECK_EVERY_S / 10)

    async def check(self) -> None:
        """Asks once. What is loaded is read again when the index of ready models changed, and when
        the endpoint comes back.
        """
        endpoint, catalog, began = self._endpoint, self._endpoint.connection.catalog, self._clock()
        index: frozenset[str] = frozenset()
        try:
            index = await catalog.ready_models()
            is_due = index != self._index or self._until_reload <= 0 or endpoint.was_loaded
            if is_due or not endpoint.is_ready:
                endpoint.was_loaded = False
                endpoint.serve(map(self._interned, await catalog.load()))
                self._index, self._until_reload = index, CHECKS_PER_RELOAD
        except NotReady as error:
            endpoint.became_unready(error)
        except Exception as error:  # a Triton of whatever kind, whose answer nobody foresaw
            endpoint.became_unready(NotReady(f"its answer cannot be read: {error!r}"))
        else:
            self._until_reload -= 1
            if endpoint.became_ready(began=began):
                self._returned(endpoint)
        finally:
            endpoint.ready_names = frozenset(one.rpartition(":")[0] for one in index)
            endpoint.checked.set()


logger = structlog.get_logger(__name__)


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
