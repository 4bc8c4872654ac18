"""The responses of a proxy that runs alone, in its memory. Implements responses.ResponseStore."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, field
from itertools import islice

from proxy.domain.delta_log import NumberedDelta
from proxy.state.kept_by_tenant import KeptByTenant
from proxy.state.responses import (
    TENANT_RESPONSES,
    Claim,
    EventsNotKept,
    KeptResponse,
    LostJob,
    ResponseKey,
    ResponseLimits,
)

MOST_LOG_BYTES = 8_000_000  # of one response's events; the oldest go first
AT_ONCE = 64


@dataclass(slots=True)
class EventLog:
    """events: those from number `first` on. is_over: no more will come."""

    events: deque[bytes] = field(default_factory=deque)
    first: int = 0
    size_bytes: int = 0
    is_over: bool = False
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def count(self) -> int:
        return self.first + len(self.events)

    def add(self, events: Sequence[bytes]) -> None:
        self.events.extend(events)
        self.size_bytes += sum(map(len, events))
        while self.size_bytes > MOST_LOG_BYTES:
            self.size_bytes -= len(self.events.popleft())
            self.first += 1
        self.change()

    def change(self) -> None:
        changed, self.changed = self.changed, asyncio.Event()
        changed.set()


@dataclass(slots=True)
class MemoryResponse:
    kept: KeptResponse
    log: EventLog | None = None


class MemoryResponses:
    """clock: seconds that never go back."""

    def __init__(
        self, limits: ResponseLimits, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.limits = limits
        self._kept: KeptByTenant[MemoryResponse] = KeptByTenant(
            keep_s=limits.keep_s,
            most_bytes=limits.bytes,
            most_of_tenant=TENANT_RESPONSES,
            clock=clock,
        )
        self._running: dict[bytes, MemoryResponse] = {}

    async def put(self, key: ResponseKey, kept: KeptResponse) -> None:
        await self._keep(key, MemoryResponse(kept))

    async def response(self, key: ResponseKey) -> bytes | None:
        found = self._find(key)
        return None if found is None else found.kept.response

    async def input(self, key: ResponseKey) -> bytes | None:
        found = self._find(key)
        return None if found is None else found.kept.input

    async def delete(self, key: ResponseKey) -> bool:
        running = self._running.pop(key.id, None)
        if running is not None and running.log is not None:
            running.log.is_over = True
            running.log.change()
        return self._kept.remove(key.id) or running is not None

    async def begin(self, key: ResponseKey, kept: KeptResponse, job: bytes) -> Claim:
        self._running[key.id] = MemoryResponse(kept, EventLog())
        return Claim(key=key, token="")

    async def append(
        self, claim: Claim, events: Sequence[bytes], deltas: Sequence[NumberedDelta]
    ) -> bool:
        running = self._running.get(claim.key.id)
        if running is None or running.log is None:
            return False
        running.log.add(events)
        return True

    async def finish(self, claim: Claim, kept: KeptResponse) -> None:
        running = self._running.pop(claim.key.id, None)
        if running is None or running.log is None:
            return
        await self._keep(claim.key, MemoryResponse(kept, running.log))
        running.log.is_over = True
        running.log.change()

    async def events(self, key: ResponseKey, after: int) -> AsyncGenerator[bytes, None]:
        found = self._find(key)
        if found is None or found.log is None:
            raise EventsNotKept
        log, at = found.log, after
        while True:
            if at < log.first:
                raise EventsNotKept
            if at < log.count:
                taken = list(islice(log.events, at - log.first, at - log.first + AT_ONCE))
                at += len(taken)
                yield b"".join(taken)
            elif log.is_over:
                return
            else:
                await log.changed.wait()

    async def cancel(self, key: ResponseKey) -> None:
        """All are generated in this process, which ends them itself."""

    async def lost(self) -> LostJob | None:
        return None

    async def renew(self, claims: Sequence[Claim]) -> Sequence[Claim]:
        return [claim for claim in claims if claim.key.id not in self._running]

    async def release(self, claims: Sequence[Claim]) -> None:
        """There is no other process."""

    async def remove_expired(self) -> int:
        await self._kept.remove_expired()
        return self._kept.size_bytes

    def _find(self, key: ResponseKey) -> MemoryResponse | None:
        return self._running.get(key.id) or self._kept.get(key.id)

    async def _keep(self, key: ResponseKey, response: MemoryResponse) -> None:
        log_bytes = 0 if response.log is None else response.log.size_bytes
        size = response.kept.size_bytes + log_bytes
        await self._kept.put(key.id, key.tenant, response, size)
