"""All addresses of a name, such as that of a headless service, looked up again and again."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from threading import Thread
from typing import TypeAlias

from proxy.domain.endpoints import EndpointAddress
from proxy.pools.discovery.endpoint_address import joined
from proxy.pools.discovery.endpoint_set import EndpointSet
from proxy.pools.discovery.outage import GrowingPause, Outage
from proxy.pools.discovery.source_url import DnsUrl

EVERY_S = 5.0
# How long the last addresses remain: where the name has none any more, as of a service without
# ready pods, and where no name server answers.
EMPTY_S = 60.0
FAILED_S = 3600.0
_NO_ADDRESSES = {socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME)}

# name -> its IP addresses, none if it has none; raises OSError if that is not known
Resolve: TypeAlias = Callable[[str], Awaitable[list[str]]]


async def system_addresses(name: str) -> list[str]:
    """A and AAAA, from the system's resolver.

    In a thread of its own, which no exit of the process waits for: a lookup without an answer can
    take half a minute, and nothing ends it.
    """
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[list[str]] = loop.create_future()

    def finish(found: list[str] | OSError) -> None:
        if answer.done():
            return
        if isinstance(found, OSError):
            answer.set_exception(found)
        else:
            answer.set_result(found)

    def look_up() -> None:
        found = _looked_up(name)
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(finish, found)

    Thread(target=look_up, name="dns", daemon=True).start()
    return await answer


def _looked_up(name: str) -> list[str] | OSError:
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except UnicodeError as error:
        return OSError(f"{name} cannot be looked up: {error}")
    except OSError as error:
        return [] if error.errno in _NO_ADDRESSES else error
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


class DnsName:
    """Implements domain.endpoints.EndpointSource."""

    def __init__(self, url: DnsUrl, resolve: Resolve = system_addresses) -> None:
        self._url = url
        self._resolve = resolve

    async def watch(self) -> AsyncGenerator[frozenset[EndpointAddress], None]:
        latest, outage = EndpointSet(str(self._url)), Outage(str(self._url))
        pause = GrowingPause(1.0, 2 * EVERY_S)
        now = asyncio.get_running_loop().time
        answered_at = now()
        while True:
            addresses = await self._addresses(outage)
            if addresses:
                answered_at = now()
                outage.ended()
            held_s = FAILED_S if addresses is None else EMPTY_S
            if addresses or now() - answered_at >= held_s or self._is_first(addresses, latest):
                fresh = latest.changed(self._endpoint(each) for each in addresses or ())
                if fresh is not None:
                    yield fresh
            if addresses is None:
                await pause.wait()
            else:
                await asyncio.sleep(EVERY_S)

    async def _addresses(self, outage: Outage) -> list[str] | None:
        """None: they could not be looked up."""
        try:
            found = await self._resolve(self._url.name)
        except OSError as error:
            outage.failed(f"{self._url.name}: {error.strerror or error}")
            return None
        if not found:
            outage.failed(f"{self._url.name} has no addresses")
        return found

    def _is_first(self, addresses: list[str] | None, latest: EndpointSet) -> bool:
        return addresses is not None and not latest.is_known

    def _endpoint(self, address: str) -> EndpointAddress:
        return EndpointAddress(joined(address, self._url.port), self._url.metrics_port)
