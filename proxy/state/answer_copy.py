"""Answers in the store of streams: writes those of this process, and reads all. Used by `relay`."""

from __future__ import annotations

import asyncio
import contextlib
import time

from proxy import background
from proxy.state.answer import (
    Head,
    JoinRefused,
    KeyedRequest,
    Notice,
    OpenAnswer,
    Outcome,
    Reason,
    check_resumption,
)
from proxy.state.recording import Recording
from proxy.state.streams import (
    MOST_ENTRIES,
    Claim,
    FoundStream,
    Kind,
    Parts,
    StreamLost,
    StreamReader,
    StreamStore,
    StreamsUnavailable,
)

LAG_S, LOOK_S = 2.0, 0.02  # of the copy behind the answer


class Copy:
    """Writes an answer to the store, and renews its claim. While somebody reads the copy, the
    generation counts one more reader. Where the store fails for longer than a claim stands, the
    copy ends: the answer itself does not.
    The copy of a private answer says that it is private, and nothing else. Of one with too many
    bytes, the older half of the entries makes room: nobody can join it from its beginning then.
    """

    def __init__(self, store: StreamStore, claim: Claim, recording: Recording) -> None:
        self._store = store
        self._claim = claim
        self._recording = recording
        self._entries = self._bytes = 0
        self._reader = recording.enter(0, is_counted=False)
        self._writing = asyncio.create_task(self._write())
        self._beating = asyncio.create_task(self._beat())

    async def written(self) -> bool:
        """Waits for the end of the answer; whether all of it has been written."""
        await asyncio.wait((self._writing,))
        return not self._writing.cancelled() and self._writing.result()

    async def close(self) -> None:
        """Also ends the renewals."""
        await background.end((self._writing, self._beating))
        self._recording.leave(self._reader)

    async def _write(self) -> bool:
        with contextlib.suppress(StreamLost, StreamsUnavailable):
            head = await self._recording.began()
            if self._recording.is_private:
                self._recording.leave(self._reader)
                return await self._add(Kind.PRIVATE)
            stands = await self._add(Kind.HEAD, [head.as_json()])
            async for parts in self._recording.parts(self._reader):
                if not stands:
                    return False
                if not isinstance(parts, Notice):
                    stands = await self._add(Kind.PARTS, parts)
            return stands and await self._add(Kind.END)
        return False

    async def _add(self, kind: Kind, parts: Parts = ()) -> bool:
        self._entries += 1
        self._bytes += sum(map(len, parts))
        self._claim.most_entries = MOST_ENTRIES
        if self._bytes > self._store.limits.stream_bytes and self._entries > 2:
            self._entries, self._bytes = self._entries // 2, self._bytes // 2
            self._claim.most_entries = self._entries
        return await self._store.append(self._claim, kind, parts)

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(self._store.lease_s / 4)
            with contextlib.suppress(StreamsUnavailable):
                renewed = await self._store.renew(self._claim)
                self._recording.count_in(self._reader, all(renewed))


class CopiedAnswer(StreamReader, OpenAnswer):
    """An answer that is read in the store, while it is written or after that."""

    def __init__(self, store: StreamStore, request: KeyedRequest, found: FoundStream) -> None:
        super().__init__(found, request.after, reads_head=True)
        self.outcome = Outcome.REPLAYED if found.is_kept else Outcome.JOINED
        self._store = store
        self._key = request
        self._found: FoundStream | None = found

    async def head(self) -> Head:
        entry, after = await self.next(), self._after
        match entry.kind:
            case Kind.HEAD:
                head = Head.of_json(entry.parts[0])
                check_resumption(after, head, await self._known() if after else None)
                return head
            case Kind.PARTS:
                raise JoinRefused(Reason.NOT_KEPT if after else Reason.TOO_LARGE)
            case Kind.PRIVATE:
                raise JoinRefused(Reason.PRIVATE)
            case Kind.END:
                raise StreamLost

    async def _known(self) -> int:
        """How many parts there are so far. Readers of the owner have a part before it is here, and
        may come back for the rest at once.
        """
        ends, found = time.monotonic() + LAG_S, self._found
        while found is not None:
            late = found.has_end or time.monotonic() >= ends
            if found.parts >= self._after or late:
                return found.parts
            await asyncio.sleep(LOOK_S)
            found = await self._store.find(self._key)
        raise StreamLost
