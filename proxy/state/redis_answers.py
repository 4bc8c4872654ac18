"""The idempotent answers of several proxies, in Redis or Valkey. Implements relay.Records.

A claim stands for as long as its owner renews it. The owner writes a copy of its answer, a stream
whose entries have a kind; parts also have the number of parts before them, and how many they are.
Everything has a time to live.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

import structlog
from redis.exceptions import ResponseError

from proxy import background
from proxy.state import redis_scripts
from proxy.state.answer import (
    AnswerLimits,
    AnswerLost,
    Head,
    JoinRefused,
    KeyedRequest,
    Notice,
    OpenAnswer,
    Outcome,
    Reason,
    RecordsUnavailable,
    check_resumption,
)
from proxy.state.event_numbering import after_event
from proxy.state.redis_connection import ANSWERS, FAILURES, RedisConnection
from proxy.state.redis_streams import Entry, StreamFollower
from proxy.state.relay import RunningAnswer

logger = structlog.get_logger(__name__)

LEASE_MS = 10_000
OVERHEAD_BYTES = 1024  # of a kept answer, besides its parts
HEAD, PART, END, LOST, PRIVATE = b"H", b"P", b"E", b"L", b"X"
WRITTEN = "equal or smaller"  # Redis' words for the number of an entry that it has
LAG_S, LOOK_S = 2.0, 0.02  # of the copy behind the answer


class AnswerKeys:
    """The names in Redis of one request's record, and of the answer that `token` generates."""

    def __init__(self, request: KeyedRequest, token: str) -> None:
        one = request.id.hex()
        self.token = token
        self.record = f"{ANSWERS}r:{one}"
        self.tenant = request.tenant
        self.parts = f"{ANSWERS}p:{one}:{token}"
        self.readers = f"{ANSWERS}w:{one}:{token}"


class RedisRecords:
    """lease_ms: for how long a claim stands after its last renewal."""

    def __init__(
        self, redis: RedisConnection, limits: AnswerLimits, *, lease_ms: int = LEASE_MS
    ) -> None:
        self.redis = redis
        self.limits = limits
        self.lease_ms = lease_ms
        self.streams = StreamFollower(redis, ANSWERS)
        self._copies: dict[str, Copy] = {}
        script = redis.answers.register_script
        self._claim = script(redis_scripts.CLAIM)
        self.renew = script(redis_scripts.RENEW)
        self._release = script(redis_scripts.RELEASE)
        self._keep = script(redis_scripts.KEEP)

    async def claim(self, request: KeyedRequest, token: str) -> OpenAnswer | None:
        record = AnswerKeys(request, token).record
        args = (token, request.body, self.lease_ms)
        found = await self.call(request.tenant, self._claim, (record,), args)
        if found is None:
            return None
        other, body, state, head, parts = found
        if body != request.body:
            raise JoinRefused(Reason.OTHER_BODY)
        outcome = Outcome.JOINED
        if state == b"kept":
            check_resumption(request.after, Head.of_json(head), int(parts))
            outcome = Outcome.REPLAYED
        return CopiedAnswer(self, AnswerKeys(request, other.decode()), request.after, outcome)

    def published(self, running: RunningAnswer) -> None:
        self._copies[running.token] = Copy(self, running)

    async def keep(self, running: RunningAnswer) -> None:
        """Raises RecordsUnavailable: the copy is not complete."""
        request, token, limits = running.request, running.token, self.limits
        copy, head = self._copies.get(token), running.head
        try:
            if copy is None or head is None or not await copy.written():
                raise RecordsUnavailable("the copy of the answer in Redis is not complete")
            keys = AnswerKeys(request, token)
            args = (
                ANSWERS,
                request.id.hex(),
                token,
                request.tenant.hex(),
                head.as_json(),
                running.count,
                OVERHEAD_BYTES + running.held_bytes,
                int(time.time() * 1000),
                int(limits.keep_s * 1000),
                limits.tenant_answers,
                limits.kept_bytes,
            )
            names, patience_s = (keys.record, keys.parts), self.lease_ms / 1000
            await self.call(request.tenant, self._keep, names, args, patience_s=patience_s)
        finally:
            await self._end_copy(token)

    async def release(self, request: KeyedRequest, token: str) -> None:
        """After the copy has its end, for those who read it."""
        if (copy := self._copies.get(token)) is not None:
            await copy.written()
        await self._end_copy(token)
        record = AnswerKeys(request, token).record
        with contextlib.suppress(RecordsUnavailable):
            await self.call(request.tenant, self._release, (record,), (token,))

    async def stored_bytes(self) -> int:
        """What expired since the last answer that was kept still counts."""
        return int(await self.call(b"", self.redis.answers.get, f"{ANSWERS}bytes") or 0)

    async def close(self) -> None:
        for token in list(self._copies):
            await self._end_copy(token)

    async def _end_copy(self, token: str) -> None:
        copy = self._copies.pop(token, None)
        if copy is not None:
            await copy.close()

    async def call(
        self, tenant: bytes, command: Callable[..., Awaitable[Any]], *args: Any, **options: Any
    ) -> Any:
        """As RedisConnection.call. Raises RecordsUnavailable."""
        try:
            return await self.redis.call(tenant, command, *args, **options)
        except FAILURES as error:
            if not self.redis.is_away:  # it concerns this answer only
                logger.warning(
                    "idempotency: redis cannot be used",
                    error=str(error),
                    advice="look at the server that LEDGER_URL names",
                )
            raise RecordsUnavailable(str(error)) from error


class Copy:
    """Writes a running answer to Redis, and renews its claim. While somebody reads the copy, the
    generation counts one more reader. Where Redis fails for longer than a claim stands, the copy
    ends: the answer itself does not.
    The copy of a private answer says that it is private, and nothing else. Of one with too many
    bytes, the older half of the entries makes room: nobody can join it from its beginning then.
    """

    def __init__(self, records: RedisRecords, running: RunningAnswer) -> None:
        self._records = records
        self._client = records.redis.answers
        self._keys = AnswerKeys(running.request, running.token)
        self._recording = running
        self._entries = self._bytes = self._number = 0
        self._reader = running.enter(0, is_counted=False)
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
        with contextlib.suppress(*FAILURES):
            try:
                await self._write_parts()
                return True
            except AnswerLost:
                await self._add(LOST)
        return False

    async def _write_parts(self) -> None:
        head = await self._recording.began()
        if self._recording.is_private:
            self._recording.leave(self._reader)
            await self._add(PRIVATE)
            return
        await self._add(HEAD, data=head.as_json())
        async for part in self._recording.parts(self._reader):
            if not isinstance(part, Notice):
                await self._add(PART, self._reader.at, self._reader.taking, part)
        await self._add(END)

    async def _add(self, kind: bytes, first: int = 0, parts: int = 0, data: bytes = b"") -> None:
        fields = {b"k": kind, b"f": first, b"n": parts, b"d": data}
        self._number += 1
        try:
            await self._insist(self._client.xadd, self._keys.parts, fields, f"{self._number}-0")
        except ResponseError as error:
            if WRITTEN not in str(error):
                raise
        if kind is not PART and kind is not END:
            await self._insist(self._client.pexpire, self._keys.parts, self._records.lease_ms)
        self._entries += 1
        self._bytes += len(data)
        if self._bytes > self._records.limits.answer_bytes and self._entries > 2:
            self._entries, self._bytes = self._entries // 2, self._bytes // 2
            await self._insist(self._client.xtrim, self._keys.parts, self._entries, False)

    async def _insist(self, command: Callable[..., Awaitable[Any]], *args: Any) -> None:
        patience_s = self._records.lease_ms / 1000
        redis, tenant = self._records.redis, self._keys.tenant
        await redis.call(tenant, command, *args, patience_s=patience_s)

    async def _beat(self) -> None:
        keys, lease_ms = self._keys, self._records.lease_ms
        names = (keys.record, keys.parts, keys.readers)
        while True:
            await asyncio.sleep(lease_ms / 4000)
            with contextlib.suppress(*FAILURES):
                args = (keys.token, lease_ms)
                renewed = await self._records.redis.call(
                    keys.tenant, self._records.renew, names, args
                )
                self._recording.count_in(self._reader, all(renewed))


class CopiedAnswer(OpenAnswer):
    """An answer that is read in Redis, while it is written or after that."""

    def __init__(
        self, records: RedisRecords, keys: AnswerKeys, after: int, outcome: Outcome
    ) -> None:
        self.outcome = outcome
        self._records = records
        self._client = records.redis.answers
        self._keys = keys
        self._after = after
        self._pages = records.streams.pages(keys.parts, keys.tenant)
        self._entries: deque[Entry] = deque()
        self._counts_until = 0.0  # as a reader, by the monotonic clock
        self._has_owner = True

    async def aclose(self) -> None:
        await self._pages.aclose()

    async def head(self) -> Head:
        fields = await self._next()
        kind = fields[b"k"]
        if kind == PART:
            raise JoinRefused(Reason.NOT_KEPT if self._after else Reason.TOO_LARGE)
        if kind == PRIVATE:
            raise JoinRefused(Reason.PRIVATE)
        if kind != HEAD:
            raise AnswerLost
        head = Head.of_json(fields[b"d"])
        check_resumption(self._after, head, await self._known() if self._after else None)
        return head

    async def parts(self) -> AsyncGenerator[bytes | Notice, None]:
        expected = 0
        while (fields := await self._next())[b"k"] == PART:
            first, data = int(fields[b"f"]), fields[b"d"]
            if first != expected:
                raise AnswerLost  # the entries between were trimmed
            expected = first + int(fields[b"n"])
            if expected > self._after:
                yield after_event(data, self._after) if first < self._after else data
        if fields[b"k"] == LOST:
            raise AnswerLost

    async def _known(self) -> int:
        """How many parts there are so far. Readers beside the owner have a part before it is here,
        and may come back for the rest at once.
        """
        ends = time.monotonic() + LAG_S
        while True:
            newest = await self._call(self._client.xrevrange, self._keys.parts, count=2)
            parts = (fields for _, fields in newest if fields[b"k"] == PART)
            known = next((int(each[b"f"]) + int(each[b"n"]) for each in parts), 0)
            is_whole = any(fields[b"k"] in (END, LOST) for _, fields in newest)
            if known >= self._after or is_whole or time.monotonic() >= ends:
                return known
            await asyncio.sleep(LOOK_S)

    async def _next(self) -> dict[bytes, bytes]:
        """Raises AnswerLost, RecordsUnavailable."""
        while not self._entries:
            await self._read()
        return self._entries.popleft()[1]

    async def _read(self) -> None:
        if time.monotonic() >= self._counts_until:
            lease_ms = self._records.lease_ms
            self._counts_until = time.monotonic() + lease_ms / 4000
            await self._call(self._client.set, self._keys.readers, b"", px=lease_ms)
        try:
            page = await anext(self._pages)
        except FAILURES as error:
            raise RecordsUnavailable(str(error)) from error
        self._entries.extend(page)
        if not page and not self._has_owner:
            raise AnswerLost
        if not page:
            token = await self._call(self._client.hget, self._keys.record, "token")
            self._has_owner = token == self._keys.token.encode()

    async def _call(
        self, command: Callable[..., Awaitable[Any]], *args: Any, **options: Any
    ) -> Any:
        records, patience_s = self._records, self._records.redis.patience_s
        return await records.call(
            self._keys.tenant, command, *args, patience_s=patience_s, **options
        )
