"""The kept answers of a proxy that runs alone, in its memory. Implements relay.Records.

A claim needs no record here: `relay` itself knows which answers this process generates.
"""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from sys import getsizeof

from proxy.state.answer import (
    OVERHEAD_BYTES,
    AnswerLost,
    Head,
    JoinRefused,
    KeyedRequest,
    Notice,
    OpenAnswer,
    Outcome,
    Quotas,
    Reason,
    check_resumption,
)
from proxy.state.recording import JOINED_PARTS, Recording

REMOVED_AT_ONCE = 200
PART_BYTES = getsizeof(b"") + 8  # of a part, besides its data


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptAnswer:
    """size_bytes: of all parts, and OVERHEAD_BYTES. expires_s: by the clock."""

    tenant: bytes
    body: bytes
    head: Head
    parts: Sequence[bytes]
    size_bytes: int
    expires_s: float


@dataclass(slots=True)
class TenantAnswers:
    """answers: their ids, the oldest first."""

    answers: OrderedDict[bytes, None] = field(default_factory=OrderedDict)
    size_bytes: int = 0


class MemoryRecords:
    """clock: seconds that never go back.

    All answers are kept for the same time, so the oldest is also the first that expires.
    """

    def __init__(self, quotas: Quotas, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._quotas = quotas
        self._clock = clock
        # by the request's id, the oldest first
        self._answers: OrderedDict[bytes, KeptAnswer] = OrderedDict()
        self._tenants: dict[bytes, TenantAnswers] = {}
        self._sizes: list[tuple[int, bytes]] = []  # bytes and tenant, sorted
        self._bytes = 0

    async def claim(self, request: KeyedRequest, token: str) -> OpenAnswer | None:
        kept = self._answers.get(request.id)
        if kept is None:
            return None
        if kept.expires_s <= self._clock():
            self._remove(request.id)
            return None
        if kept.body != request.body:
            raise JoinRefused(Reason.OTHER_BODY)
        check_resumption(request.after, kept.head, len(kept.parts))
        return ReplayedAnswer(kept, request.after, lambda: self._answers.get(request.id) is kept)

    def published(self, request: KeyedRequest, token: str, recording: Recording) -> None:
        """Requests of this process join the recording itself."""

    async def keep(self, request: KeyedRequest, token: str, recording: Recording) -> None:
        assert recording.head is not None
        head = replace(recording.head, own_headers=())
        parts = recording.kept()
        size = OVERHEAD_BYTES + recording.held_bytes + PART_BYTES * len(parts)
        kept = KeptAnswer(
            tenant=request.tenant,
            body=request.body,
            head=head,
            parts=parts,
            size_bytes=size,
            expires_s=self._clock() + self._quotas.keep_s,
        )
        if request.id in self._answers:
            self._remove(request.id)
        self._answers[request.id] = kept
        self._tenants.setdefault(request.tenant, TenantAnswers()).answers[request.id] = None
        self._resize(request.tenant, size)
        await self._make_room(request.tenant)

    async def release(self, request: KeyedRequest, token: str) -> None:
        """There is nothing to release."""

    async def stored_bytes(self) -> int:
        while self._remove_expired():  # noqa: ASYNC110  (there is no event)
            await asyncio.sleep(0)  # requests are served between two steps
        return self._bytes

    async def close(self) -> None:
        """There is nothing to close."""

    def _remove_expired(self) -> bool:
        """Removes some of what has expired; whether there may be more."""
        now = self._clock()
        for _ in range(REMOVED_AT_ONCE):
            oldest = next(iter(self._answers), None)
            if oldest is None or self._answers[oldest].expires_s > now:
                return False
            self._remove(oldest)
        return True

    async def _make_room(self, tenant: bytes) -> None:
        for number in count(1):
            surplus = self._surplus(tenant)
            if surplus is None:
                return
            self._remove(surplus)
            if number % REMOVED_AT_ONCE == 0:
                await asyncio.sleep(0)

    def _surplus(self, tenant: bytes) -> bytes | None:
        """The tenant's oldest answer beyond its number; then the oldest of whichever tenant has
        most bytes, so that no tenant pushes out the answers of another.
        """
        mine = self._tenants.get(tenant)
        if mine is not None and len(mine.answers) > self._quotas.answers:
            return next(iter(mine.answers))
        if self._bytes > self._quotas.bytes:
            _, largest = self._sizes[-1]
            return next(iter(self._tenants[largest].answers))
        return None

    def _remove(self, one: bytes) -> None:
        kept = self._answers.pop(one)
        del self._tenants[kept.tenant].answers[one]
        self._resize(kept.tenant, -kept.size_bytes)

    def _resize(self, tenant: bytes, more: int) -> None:
        self._bytes += more
        found = self._tenants[tenant]
        if found.size_bytes:
            del self._sizes[bisect_left(self._sizes, (found.size_bytes, tenant))]
        found.size_bytes += more
        if found.size_bytes:
            insort(self._sizes, (found.size_bytes, tenant))
        else:
            del self._tenants[tenant]


class ReplayedAnswer(OpenAnswer):
    """An answer that is kept. is_there: False once it had to make room."""

    outcome = Outcome.REPLAYED

    def __init__(self, kept: KeptAnswer, after: int, is_there: Callable[[], bool]) -> None:
        self._kept = kept
        self._after = after
        self._is_there = is_there

    async def head(self) -> Head:
        return self._kept.head

    async def parts(self) -> AsyncGenerator[bytes | Notice, None]:
        """Raises AnswerLost: it was removed while it was read."""
        parts = self._kept.parts
        for first in range(self._after, len(parts), JOINED_PARTS):
            if not self._is_there():
                raise AnswerLost
            yield b"".join(parts[first : first + JOINED_PARTS])
