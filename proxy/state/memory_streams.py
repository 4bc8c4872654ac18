"""The streams of a proxy that runs alone, in its memory. Implements streams.StreamStore."""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_left
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from itertools import islice
from sys import getsizeof

from proxy.state.kept_by_tenant import KeptByTenant
from proxy.state.streams import (
    AT_ONCE,
    OVERHEAD_BYTES,
    Claim,
    Deltas,
    Entry,
    FoundStream,
    Kind,
    LostStream,
    Parts,
    StreamKey,
    StreamLimits,
    StreamLost,
)

LOG_BYTES = 2_000  # of the entries of a stream, besides the entries
ENTRY_BYTES = getsizeof(Entry(Kind.PARTS, 0)) + getsizeof(()) + 8
PART_BYTES = getsizeof(b"") + 16  # besides its data


class MemoryStream:
    """token: of the claim, while it is written. entries: those from number `dropped` on."""

    def __init__(self, token: str, fields: Mapping[str, bytes], most_bytes: int) -> None:
        self.fields = {**fields}
        self.token: str | None = token
        self.is_cancelled = self.has_end = False
        self._most_bytes = most_bytes
        self._entries: deque[Entry] = deque()
        self._dropped = self._parts = self._bytes = self._overhead = 0
        self._changed = asyncio.Event()

    @property
    def size_bytes(self) -> int:
        fields = OVERHEAD_BYTES + sum(map(len, self.fields.values()))
        log = LOG_BYTES + self._bytes + self._overhead if self._parts else 0
        return fields + log

    def add(self, kind: Kind, parts: Parts = ()) -> None:
        self._entries.append(Entry(kind, self._parts, parts))
        self._overhead += ENTRY_BYTES + PART_BYTES * len(parts)
        if kind is Kind.PARTS:
            self._parts += len(parts)
            self._bytes += sum(map(len, parts))
        self.has_end = kind is Kind.END
        while self._bytes > self._most_bytes:
            self._drop_oldest()
        self._change()

    def drop(self) -> None:
        """Gives its memory back; whoever still reads it loses the rest."""
        while self._entries:
            self._drop_oldest()
        self._change()

    def end(self) -> None:
        """Its owner writes no more."""
        self.token = None
        self._change()

    def found(self) -> FoundStream:
        return FoundStream(
            body=self.fields.get("body"),
            parts=self._parts,
            is_kept=self.token is None,
            has_end=self.has_end or self.token is None,
            pages=self._pages,
        )

    async def _pages(self, after: int) -> AsyncGenerator[Sequence[Entry], None]:
        place = bisect_left(self._entries, after, key=lambda entry: entry.first)
        at = self._dropped + max(place - 1, 0)
        while True:
            begin = max(at - self._dropped, 0)
            if page := [*islice(self._entries, begin, begin + AT_ONCE)]:
                at = self._dropped + begin + len(page)
                yield page
            elif self.token is None:
                raise StreamLost
            else:
                await self._changed.wait()

    def _drop_oldest(self) -> None:
        entry = self._entries.popleft()
        self._dropped += 1
        self._overhead -= ENTRY_BYTES + PART_BYTES * len(entry.parts)
        if entry.kind is Kind.PARTS:
            self._bytes -= sum(map(len, entry.parts))

    def _change(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()


class MemoryStreams:
    """A claim is never lost: its owner knows what it writes, and replaces the claim by another.

    clock: seconds that never go back.
    """

    is_shared, lease_s = False, 10.0

    def __init__(
        self, limits: StreamLimits, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.limits = limits
        self._kept: KeptByTenant[MemoryStream] = KeptByTenant(
            keep_s=limits.keep_s,
            most_bytes=limits.kept_bytes,
            most_of_tenant=limits.tenant_streams,
            clock=clock,
            drop=MemoryStream.drop,
        )
        self._running: dict[bytes, MemoryStream] = {}

    async def claim(self, claim: Claim, fields: Mapping[str, bytes]) -> FoundStream | None:
        if (kept := self._kept.get(claim.key.id)) is not None:
            return kept.found()
        made = MemoryStream(claim.token, fields, self.limits.stream_bytes)
        self._running[claim.key.id] = made
        return None

    async def append(
        self, claim: Claim, kind: Kind, parts: Parts = (), deltas: Deltas = ()
    ) -> bool:
        stream = self._of(claim)
        if stream is None or stream.is_cancelled:
            return False
        stream.add(kind, parts)
        return True

    async def renew(self, claim: Claim) -> tuple[bool, bool]:
        stream = self._of(claim)
        return stream is not None and not stream.is_cancelled, False

    async def keep(self, claim: Claim, fields: Mapping[str, bytes]) -> None:
        key, stream = claim.key, self._of(claim)
        if stream is None:
            return
        del self._running[key.id]
        stream.fields |= fields
        if stream.fields.pop("job", None) is not None:
            stream.add(Kind.END)
        stream.end()
        await self._kept.put(key.id, key.tenant, stream, stream.size_bytes)

    async def release(self, claim: Claim) -> None:
        stream = self._of(claim)
        if stream is not None and "job" not in stream.fields:
            del self._running[claim.key.id]
            stream.end()

    async def find(self, key: StreamKey) -> FoundStream | None:
        stream = self._stream(key)
        return None if stream is None else stream.found()

    async def field(self, key: StreamKey, name: str) -> bytes | None:
        stream = self._stream(key)
        return None if stream is None else stream.fields[name]

    async def delete(self, key: StreamKey) -> bool:
        running = self._running.pop(key.id, None)
        if running is not None:
            running.add(Kind.END)
            running.end()
        return self._kept.remove(key.id) or running is not None

    async def cancel(self, key: StreamKey) -> None:
        if (running := self._running.get(key.id)) is not None:
            running.is_cancelled = True

    async def take(self) -> LostStream | None:
        return None

    async def stored_bytes(self) -> int:
        await self._kept.remove_expired()
        return self._kept.size_bytes

    def _stream(self, key: StreamKey) -> MemoryStream | None:
        return self._running.get(key.id) or self._kept.get(key.id)

    def _of(self, claim: Claim) -> MemoryStream | None:
        """None: the stream was deleted."""
        stream = self._running.get(claim.key.id)
        return None if stream is None or stream.token != claim.token else stream
