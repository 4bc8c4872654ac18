"""Kept streams: what their users share, and the port of their store.

An idempotent answer is one (`relay`), and so is a response (`api.responses`).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from secrets import token_hex
from typing import Protocol

from proxy.domain.delta_log import NumberedDelta

Parts = Sequence[bytes]
Deltas = Sequence[NumberedDelta]

OVERHEAD_BYTES = 1_000  # of a kept stream, besides its fields and entries
MOST_ENTRIES = 100_000  # of one stream
TENANT_STREAMS = 10_000
AT_ONCE = 64  # the most parts that a reader gets at once


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamLimits:
    """keep_s: of a stream that has ended; 0: none is kept. kept_bytes: of all of them.
    tenant_streams: of one tenant. stream_bytes: of one stream in memory; the oldest entries make
    room.
    """

    keep_s: float
    kept_bytes: int
    tenant_streams: int = TENANT_STREAMS
    stream_bytes: int = 8_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamKey:
    """id: digest of what names the stream, and of who may read it. tenant: digest of whose bound it
    counts in.
    """

    id: bytes
    tenant: bytes


@dataclass(slots=True)
class Claim:
    """A stream that this process writes, for as long as it renews the claim.

    patience_s: how long its writes wait for a store that is away. parts: how many were written, by
    all owners. entries: by this one. most_entries: the oldest go first.
    """

    key: StreamKey
    patience_s: float
    token: str = field(default_factory=lambda: token_hex(16))
    parts: int = 0
    entries: int = 0
    most_entries: int = MOST_ENTRIES


class Kind(str, Enum):
    HEAD = "H"
    PARTS = "P"
    END = "E"
    PRIVATE = "X"  # the owner writes nothing else


@dataclass(frozen=True, slots=True)
class Entry:
    """first: how many parts there were before. deltas: of the engine, which the parts show."""

    kind: Kind
    first: int
    parts: Parts = ()
    deltas: Deltas = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundStream:
    """parts: how many there are so far. has_end: no more will be written. pages: reads the entries
    that are not dropped, from the one with this part or an earlier one on; raises StreamLost where
    they cease before the end.
    """

    body: bytes | None
    parts: int
    is_kept: bool
    has_end: bool
    pages: Callable[[int], AsyncGenerator[Sequence[Entry], None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class LostStream:
    """One whose process has ended. deltas: all of them. takes: how often it was taken from a lost
    process, this time too; not from one that released it.
    """

    claim: Claim
    job: bytes
    input: bytes
    deltas: Deltas
    takes: int


class StreamLost(Exception):
    """Parts that a reader wants were dropped, or never written."""


class StreamsUnavailable(Exception):
    """They cannot be read or written at present. The message is for the log."""


class StreamStore(Protocol):
    """The streams of one kind. Fields of a stream are `body`, `head`, `input`, and `job`: what
    another process needs in order to continue it.

    All methods raise StreamsUnavailable where the store cannot be used. is_shared: whether other
    processes read and continue the streams. lease_s: for how long a claim stands without renewal.
    """

    limits: StreamLimits
    is_shared: bool
    lease_s: float

    async def claim(self, claim: Claim, fields: Mapping[str, bytes]) -> FoundStream | None:
        """The stream that is there; else None, and the claim stands."""
        ...

    async def append(
        self, claim: Claim, kind: Kind, parts: Parts = (), deltas: Deltas = ()
    ) -> bool:
        """False: the stream was cancelled or deleted, or another process has it now."""
        ...

    async def renew(self, claim: Claim) -> tuple[bool, bool]:
        """Whether `append` would write; and whether another process reads the stream."""
        ...

    async def keep(self, claim: Claim, fields: Mapping[str, bytes]) -> None:
        """Ends the claim, and keeps the stream. The oldest may have to make room."""
        ...

    async def release(self, claim: Claim) -> None:
        """Ends the claim: another process continues a stream with a job at once; others go."""
        ...

    async def find(self, key: StreamKey) -> FoundStream | None: ...

    async def field(self, key: StreamKey, name: str) -> bytes | None: ...

    async def delete(self, key: StreamKey) -> bool:
        """Whether there was one. Whoever writes it ends."""
        ...

    async def cancel(self, key: StreamKey) -> None:
        """Whoever writes the stream ends it with its next part, or soon."""
        ...

    async def take(self) -> LostStream | None:
        """Claims one with a job, whose process has ended."""
        ...

    async def stored_bytes(self) -> int:
        """Removes what has expired; how many bytes are kept then."""
        ...


class StreamReader:
    """Reads what follows the first `after` parts. `aclose` must be called, however reading ends."""

    def __init__(self, found: FoundStream, after: int, *, reads_head: bool = False) -> None:
        self._after = after
        self._pages = found.pages(0 if reads_head else after)
        self._page: Sequence[Entry] = ()

    async def next(self) -> Entry:
        """The next entry, which stays the next one. Raises StreamLost, StreamsUnavailable."""
        while not self._page:
            page = await anext(self._pages, None)
            if page is None:
                raise StreamLost
            self._page = page
        return self._page[0]

    async def parts(self) -> AsyncGenerator[Parts, None]:
        """Until the end. Raises as `next`."""
        at = self._after
        while True:
            await self.next()
            page, self._page = self._page, ()
            taken: list[bytes] = []
            for entry in page:
                if entry.kind is Kind.PARTS and entry.first <= at:
                    taken += entry.parts[at - entry.first :]
                    at = max(at, entry.first + len(entry.parts))
                if len(taken) >= AT_ONCE or (taken and entry is page[-1]):
                    yield taken
                    taken = []
                if entry.first > at:
                    raise StreamLost
                if entry.kind is Kind.END:
                    return

    async def aclose(self) -> None:
        await self._pages.aclose()
