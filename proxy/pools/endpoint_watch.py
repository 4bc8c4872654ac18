"""Keeps one endpoint's state up to date by asking its Triton every half second. Run by its pool."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from proxy.domain.engine import NotReady
from proxy.domain.model import LoadedModel
from proxy.pools.endpoint import Clock, Endpoint

CHECK_EVERY_S = 0.5
CHECKS_PER_RELOAD = 60  # behind a load balancer the next check may reach another build

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
