"""All addresses of a name, such as that of a headless service, looked up again and again."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Thread

from proxy.domain.endpoints import EndpointAddress
from proxy.pools.discovery.endpoint_address import joined
from proxy.pools.discovery.source import GrowingPause, Source

EVERY_S = 5.0
# How long the last addresses remain: where the name has none any more, as of a service without
# ready pods, and where no name server answers.
EMPTY_S = 60.0
FAILED_S = 3600.0
_NO_ADDRESSES = {socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME)}


async def system_addresses(name: str) -> list[str]:
    """A and AAAA, from the system's resolver; none if the name has none. Raises OSError.

    In a thread of its own, which no exit of the process waits for: a lookup without an answer can
    take half a minute, and nothing ends it.
    """
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[list[str] | OSError] = loop.create_future()

    def finish(found: list[str] | OSError) -> None:
        if not answer.done():
            answer.set_result(found)

    def look_up() -> None:
        found = _looked_up(name)
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(finish, found)

    Thread(target=look_up, name="dns", daemon=True).start()
    found = await answer
    if isinstance(found, OSError):
        raise found
    return found


def _looked_up(name: str) -> list[str] | OSError:
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except UnicodeError as error:
        return OSError(f"{name} cannot be looked up: {error}")
    except OSError as error:
        return [] if error.errno in _NO_ADDRESSES else error
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


@dataclass(kw_only=True, eq=False)
class DnsName(Source):
    host: str
    port: int
    metrics_port: int | None  # of every endpoint; None for the pool's own
    resolve: Callable[[str], Awaitable[list[str]]] = system_addresses
    pause: GrowingPause = field(default_factory=lambda: GrowingPause(1.0, 2 * EVERY_S))

    @property
    def certified_name(self) -> str:
        return self.host

    async def sets(self) -> AsyncGenerator[list[EndpointAddress], None]:
        now = asyncio.get_running_loop().time
        held: list[str] | None = None
        answered_at = now()
        while True:
            try:
                found = await self.resolve(self.host)
            except OSError as error:
                self.problem = f"{self.host}: {error.strerror or error}"
                if held is None:
                    raise ValueError(self.problem) from None
                if now() - answered_at >= FAILED_S:
                    held = []
                yield self._endpoints(held)
                await self.pause.wait()
                continue
            self.problem = None if found else f"{self.host} has no addresses"
            if found:
                answered_at = now()
            if found or held is None or now() - answered_at >= EMPTY_S:
                held = found
            yield self._endpoints(held)
            await asyncio.sleep(EVERY_S)

    def _endpoints(self, addresses: list[str]) -> list[EndpointAddress]:
        return [EndpointAddress(joined(each, self.port), self.metrics_port) for each in addresses]
