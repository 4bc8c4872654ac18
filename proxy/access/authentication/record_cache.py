"""A bounded cache in front of a slow lookup by name. Used by KnownKeys and KnownTenants."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Generic, TypeVar

from proxy.domain.key_records import KeysUnavailable

MOST_RECORDS = 10_000
ABSENT_S = 10.0  # how long an unknown name is remembered, if nothing changes in the store
LOOKUP_TIMEOUT_S = 2.0


class LookupSlots:
    """`async with`: at most `at_once` lookups run, `waiting` more wait, and one more is refused.

    Raises KeysUnavailable: too many wait.
    """

    def __init__(self, *, at_once: int = 8, waiting: int = 256) -> None:
        self._running = asyncio.Semaphore(at_once)
        self._most = at_once + waiting
        self._count = 0

    async def __aenter__(self) -> None:
        if self._count >= self._most:
            raise KeysUnavailable("too many unknown keys are being looked up")
        self._count += 1
        try:
            await self._running.acquire()
        except BaseException:
            self._count -= 1
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: object, trace: TracebackType | None
    ) -> None:
        self._count -= 1
        self._running.release()


Record = TypeVar("Record")


class RecordCache(Generic[Record]):
    """Remembers what is found, and for a short time what is not.

    A record stays until `drop`, or until newer ones displace it; nothing is taken from memory while
    `is_trusted` is false. Concurrent lookups of a name are one lookup. Names known before
    `drop` have slots of their own, so that a flood of unknown names does not delay their being
    read again.
    """

    def __init__(
        self,
        lookup: Callable[[str], Awaitable[Record | None]],
        *,
        is_trusted: Callable[[], bool],
        clock: Callable[[], float],
        most: int = MOST_RECORDS,
    ) -> None:
        """clock: monotonic, in seconds."""
        self._lookup = lookup
        self._is_trusted = is_trusted
        self._clock = clock
        self._most = most
        self._found: dict[str, Record] = {}
        self._absent: dict[str, float] = {}  # until when
        self._former: set[str] = set()
        self._in_flight: dict[str, asyncio.Task[Record | None]] = {}
        self._epoch = 0
        self._slots, self._slots_of_former = LookupSlots(), LookupSlots()

    async def find(self, name: str) -> Record | None:
        """The record, from memory if it is there; None if there is none of this name.

        Raises:
            KeysUnavailable: the lookup failed or took too long, or too many are waiting.
        """
        if self._is_trusted():
            record = self._found.get(name)
            if record is not None:
                return record
            if self._absent.get(name, 0.0) > self._clock():
                return None
        task = self._in_flight.get(name)
        if task is None:
            task = asyncio.ensure_future(self._looked_up(name, self._epoch))
            self._in_flight[name] = task
            task.add_done_callback(lambda done: self._end(name, done))
        return await asyncio.shield(task)

    def drop(self) -> None:
        """Forgets everything; lookups in progress are not remembered when they end."""
        self._epoch += 1
        self._former = {*self._found, *(self._former if len(self._former) < self._most else ())}
        self._found.clear()
        self._absent.clear()
        self._in_flight.clear()

    async def _looked_up(self, name: str, epoch: int) -> Record | None:
        try:
            record = await asyncio.wait_for(self._in_a_slot(name), LOOKUP_TIMEOUT_S)
        except asyncio.TimeoutError:
            raise KeysUnavailable(f"no answer in {LOOKUP_TIMEOUT_S:g} s") from None
        if epoch != self._epoch or not self._is_trusted():
            return record
        if record is None:
            _put(self._absent, name, self._clock() + ABSENT_S, self._most)
        else:
            _put(self._found, name, record, self._most)
        return record

    async def _in_a_slot(self, name: str) -> Record | None:
        async with self._slots_of_former if name in self._former else self._slots:
            return await self._lookup(name)

    def _end(self, name: str, done: asyncio.Task[Record | None]) -> None:
        if self._in_flight.get(name) is done:
            del self._in_flight[name]
        if not done.cancelled():
            done.exception()  # its callers may have disconnected


Value = TypeVar("Value")


def _put(values: dict[str, Value], name: str, value: Value, most: int) -> None:
    """Adds to a dict that keeps its newest `most` entries."""
    if len(values) >= most:
        del values[next(iter(values))]
    values[name] = value
