"""The streams in Redis that readers of this proxy follow: one XREAD for all streams and readers.

Used by `redis_streams`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator

from proxy.state.redis_connection import (
    AGAIN_S,
    BLOCK_S,
    FAILURES,
    RedisConnection,
)

Entry = tuple[bytes, dict[bytes, bytes]]
PAGE_ENTRIES = 256  # that one reader takes at once
NEW_ENTRIES = 32  # of each stream, of one XREAD
WAKE_MS = 60_000


class Tail:
    """The newest entries of a stream: `page`, which follow the entry `since`. changed: set when
    there is another page.
    """

    def __init__(self, since: bytes) -> None:
        self.since = since
        self.page: list[Entry] = []
        self.readers = 0
        self.changed = asyncio.get_running_loop().create_future()

    @property
    def last(self) -> bytes:
        return self.page[-1][0] if self.page else self.since

    def add(self, page: list[Entry]) -> None:
        self.since, self.page = self.last, page
        self.changed.set_result(None)
        self.changed = asyncio.get_running_loop().create_future()

    def after(self, last: bytes) -> list[Entry] | None:
        """None: the reader is so slow that it must read them itself."""
        if last == self.since:
            return self.page
        if _number(last) < _number(self.since):
            return None
        return [entry for entry in self.page if _number(entry[0]) > _number(last)]


class StreamFollower:
    """prefix: of the names of all streams, which gives them one slot of a cluster."""

    def __init__(self, redis: RedisConnection, prefix: str) -> None:
        self._redis = redis
        self._wake = f"{prefix}wake:{redis.instance}"
        self._tails: dict[str, Tail] = {}
        self._is_reading = False

    async def page(self, name: str, after: bytes, tenant: bytes, patience_s: float) -> list[Entry]:
        """The next entries that are there. Raises one of FAILURES."""
        read = self._redis.answers.xread
        found = await self._redis.call(
            tenant, read, {name: after}, count=PAGE_ENTRIES, patience_s=patience_s
        )
        return found[0][1] if found else []

    async def pages(self, name: str, tenant: bytes) -> AsyncGenerator[list[Entry], None]:
        """All entries, from the first one on. Without end; a page is empty where the reader has all
        entries, and again every BLOCK_S. Raises one of FAILURES.
        """
        last, tail = b"0-0", None
        try:
            while True:
                page = None if tail is None else tail.after(last)
                if page is None:
                    page = await self.page(name, last, tenant, self._redis.patience_s)
                if page:
                    yield page
                    last = page[-1][0]
                    continue
                if tail is None:
                    is_new = name not in self._tails
                    tail = self._enter(name, last)
                    if is_new:
                        await self._interrupt()
                elif (await asyncio.wait((tail.changed,), timeout=BLOCK_S))[0]:
                    continue
                yield []
        finally:
            if tail is not None:
                self._leave(name, tail)

    def _enter(self, name: str, last: bytes) -> Tail:
        tail = self._tails.setdefault(name, Tail(last))
        tail.readers += 1
        if not self._is_reading:
            self._is_reading = True
            self._redis.run(self._read())
        return tail

    def _leave(self, name: str, tail: Tail) -> None:
        tail.readers -= 1
        if not tail.readers:
            del self._tails[name]

    async def _read(self) -> None:
        block = {"count": NEW_ENTRIES, "block": int(BLOCK_S * 1000)}
        try:
            while self._tails:
                names = {name: tail.last for name, tail in self._tails.items()}
                command = self._redis.followers.xread({**names, self._wake: "$"}, **block)
                try:
                    found = await self._redis.answered(command, BLOCK_S)
                except FAILURES:  # readers find it out by commands of their own
                    await asyncio.sleep(AGAIN_S)
                    continue
                for each, page in found:
                    tail = self._tails.get(name := each.decode())
                    if tail is not None and tail.last == names[name]:
                        tail.add(page)
        finally:
            self._is_reading = False

    async def _interrupt(self) -> None:
        """Ends the XREAD that waits, so that the next one has all streams."""
        wake = self._redis.answers.pipeline(transaction=False)
        wake.xadd(self._wake, {b"": b""}, maxlen=1, approximate=False).pexpire(self._wake, WAKE_MS)
        with contextlib.suppress(*FAILURES):  # it ends by itself
            await self._redis.call(b"", wake.execute)


def _number(id: bytes) -> tuple[int, ...]:
    return tuple(map(int, id.split(b"-")))
