"""The kept answers of a proxy that runs alone, in its memory. Implements relay.Records.

A claim needs no record here: `relay` itself knows which answers this process generates.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from sys import getsizeof

from proxy.state.answer import AnswerLimits, JoinRefused, KeyedRequest, OpenAnswer, Outcome, Reason
from proxy.state.recording import Recording
from proxy.state.relay import RunningAnswer

REMOVED_AT_ONCE = 200
OVERHEAD_BYTES = 3000  # of a kept answer, besides its parts
PART_BYTES = getsizeof(b"") + 8  # of a part, besides its data


@dataclass(frozen=True, slots=True)
class KeptAnswer:
    """expires_s: by the clock."""

    request: KeyedRequest
    recording: Recording
    size_bytes: int
    expires_s: float


@dataclass(slots=True)
class TenantAnswers:
    """answers: by their ids, the oldest first."""

    answers: OrderedDict[bytes, KeptAnswer]
    size_bytes: int = 0


class MemoryRecords:
    """clock: seconds that never go back.

    All answers are kept for the same time, so the oldest is also the first that expires.
    """

    def __init__(
        self, limits: AnswerLimits, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._limits = limits
        self._clock = clock
        self._answers: OrderedDict[bytes, KeptAnswer] = OrderedDict()  # the oldest first
        self._tenants: dict[bytes, TenantAnswers] = {}
        self._bytes = 0

    async def claim(self, request: KeyedRequest, token: str) -> OpenAnswer | None:
        kept = self._answers.get(request.id)
        if kept is None or kept.expires_s <= self._clock():
            return None
        if kept.request.body != request.body:
            raise JoinRefused(Reason.OTHER_BODY)
        return kept.recording.enter(request.after, Outcome.REPLAYED)

    def published(self, running: RunningAnswer) -> None:
        """Requests of this process join the recording itself."""

    async def keep(self, running: RunningAnswer) -> None:
        request = running.request
        size = OVERHEAD_BYTES + running.held_bytes + PART_BYTES * running.count
        expires_s = self._clock() + self._limits.keep_s
        kept = KeptAnswer(request, running.finished_copy(), size, expires_s)
        if request.id in self._answers:
            self._remove(self._answers[request.id])
        self._answers[request.id] = kept
        tenant = self._tenants.setdefault(request.tenant, TenantAnswers(OrderedDict()))
        tenant.answers[request.id] = kept
        tenant.size_bytes += size
        self._bytes += size
        await self._remove_while(lambda: self._surplus(request.tenant))

    async def release(self, request: KeyedRequest, token: str) -> None:
        """There is nothing to release."""

    async def stored_bytes(self) -> int:
        await self._remove_while(self._expired)
        return self._bytes

    async def close(self) -> None:
        """There is nothing to close."""

    async def _remove_while(self, next_one: Callable[[], KeptAnswer | None]) -> None:
        removed = 0
        while (kept := next_one()) is not None:
            self._remove(kept)
            removed += 1
            if removed % REMOVED_AT_ONCE == 0:
                await asyncio.sleep(0)  # requests are served between two steps

    def _expired(self) -> KeptAnswer | None:
        oldest = next(iter(self._answers.values()), None)
        return oldest if oldest is not None and oldest.expires_s <= self._clock() else None

    def _surplus(self, name: bytes) -> KeptAnswer | None:
        """The tenant's oldest answer beyond its number; then the oldest of whichever tenant has
        most bytes, so that no tenant pushes out the answers of another.
        """
        tenant = self._tenants.get(name)
        if tenant is None or len(tenant.answers) <= self._limits.tenant_answers:
            if self._bytes <= self._limits.kept_bytes:
                return None
            tenant = max(self._tenants.values(), key=lambda one: one.size_bytes)
        return next(iter(tenant.answers.values()))

    def _remove(self, kept: KeptAnswer) -> None:
        """Whoever reads it loses the rest."""
        kept.recording.drop()
        request = kept.request
        tenant = self._tenants[request.tenant]
        del self._answers[request.id], tenant.answers[request.id]
        tenant.size_bytes -= kept.size_bytes
        self._bytes -= kept.size_bytes
        if not tenant.answers:
            del self._tenants[request.tenant]
