"""A list of endpoints that never changes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from proxy.domain.endpoints import EndpointAddress
from proxy.pools.discovery.endpoint_set import EndpointSet
from proxy.pools.discovery.source_url import StaticListUrl


class StaticList:
    """Implements domain.endpoints.EndpointSource."""

    def __init__(self, url: StaticListUrl) -> None:
        self._url = url

    async def watch(self) -> AsyncGenerator[frozenset[EndpointAddress], None]:
        fresh = EndpointSet(str(self._url)).changed(self._url.addresses)
        if fresh is not None:
            yield fresh
        await asyncio.Event().wait()
