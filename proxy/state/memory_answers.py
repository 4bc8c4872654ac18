"""The kept answers of a proxy that runs alone, in its memory. Implements relay.Records.

A claim needs no record here: `relay` itself knows which answers this process generates.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from sys import getsizeof

from proxy.state.answer import AnswerLimits, JoinRefused, KeyedRequest, OpenAnswer, Outcome, Reason
from proxy.state.kept_by_tenant import KeptByTenant
from proxy.state.recording import Recording
from proxy.state.relay import RunningAnswer

OVERHEAD_BYTES = 3000  # of a kept answer, besides its parts
PART_BYTES = getsizeof(b"") + 8  # of a part, besides its data


@dataclass(frozen=True, slots=True)
class KeptAnswer:
    request: KeyedRequest
    recording: Recording


class MemoryRecords:
    """clock: seconds that never go back."""

    def __init__(
        self, limits: AnswerLimits, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._answers: KeptByTenant[KeptAnswer] = KeptByTenant(
            keep_s=limits.keep_s,
            most_bytes=limits.kept_bytes,
            most_of_tenant=limits.tenant_answers,
            clock=clock,
            drop=lambda kept: kept.recording.drop(),  # whoever reads it loses the rest
        )

    async def claim(self, request: KeyedRequest, token: str) -> OpenAnswer | None:
        kept = self._answers.get(request.id)
        if kept is None:
            return None
        if kept.request.body != request.body:
            raise JoinRefused(Reason.OTHER_BODY)
        return kept.recording.enter(request.after, Outcome.REPLAYED)

    def published(self, running: RunningAnswer) -> None:
        """Requests of this process join the recording itself."""

    async def keep(self, running: RunningAnswer) -> None:
        request = running.request
        size = OVERHEAD_BYTES + running.held_bytes + PART_BYTES * running.count
        kept = KeptAnswer(request, running.finished_copy())
        await self._answers.put(request.id, request.tenant, kept, size)

    async def release(self, request: KeyedRequest, token: str) -> None:
        """There is nothing to release."""

    async def stored_bytes(self) -> int:
        await self._answers.remove_expired()
        return self._answers.size_bytes

    async def close(self) -> None:
        """There is nothing to close."""
