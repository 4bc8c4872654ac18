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
from collections.abc import AsyncGenerator, Awaitable
from typing import Any

import structlog
from redis.commands.core import AsyncScript

from proxy import background
from proxy.state import redis_scripts
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
    RecordsUnavailable,
    check_resumption,
)
from proxy.state.event_numbering import after_event
from proxy.state.recording import Recording
from proxy.state.redis_connection import ANSWERS, BLOCK_MS, FAILURES, RedisConnection

logger = structlog.get_logger(__name__)

LEASE_MS = 10_000
HEAD, PART, END, LOST, PRIVATE = b"H", b"P", b"E", b"L", b"X"
READ_ENTRIES = 32
LAG_S, LOOK_S = 2.0, 0.02  # of the copy behind the answer


class AnswerKeys:
    """The names in Redis of one request's record, and of the answer that `token` generates."""

    def __init__(self, request: KeyedRequest, token: str) -> None:
        one = request.id.hex()
        self.token = token
        self.record = f"{ANSWERS}r:{one}"
        self.parts = f"{ANSWERS}p:{one}:{token}"
        self.readers = f"{ANSWERS}w:{one}:{token}"


class RedisRecords:
    """answer_bytes: of a running answer that others may read."""

    def __init__(
        self,
        redis: RedisConnection,
        quotas: Quotas,
        *,
        answer_bytes: int,
        lease_ms: int = LEASE_MS,
    ) -> None:
        self._redis = redis
        self._client = redis.answers
        self._quotas = quotas
        self._answer_bytes = answer_bytes
        self._lease_ms = lease_ms
        self._copies: dict[str, Copy] = {}
        self._claim = self._client.register_script(redis_scripts.CLAIM)
        self._renew = self._client.register_script(redis_scripts.RENEW)
        self._release = self._client.register_script(redis_scripts.RELEASE)
        self._keep = self._client.register_script(redis_scripts.KEEP)

    async def claim(self, request: KeyedRequest, token: str) -> OpenAnswer | None:
        record = AnswerKeys(request, token).record
        args = (token, request.body, self._lease_ms)
        if self._redis.is_away:
            raise RecordsUnavailable("redis is away")
        found = await self._call(self._claim((record,), args))
        if found is None:
            return None
        other, body, state, head, parts = found
        if body != request.body:
            raise JoinRefused(Reason.OTHER_BODY)
        outcome = Outcome.JOINED
        if state == b"kept":
            check_resumption(request.after, Head.of_json(head), int(parts))
            outcome = Outcome.REPLAYED
        keys = AnswerKeys(request, other.decode())
        return CopiedAnswer(
            self._redis.readers, keys, request.after, outcome, lease_ms=self._lease_ms
        )

    def published(self, request: KeyedRequest, token: str, recording: Recording) -> None:
        self._copies[token] = Copy(
            self._client,
            self._renew,
            AnswerKeys(request, token),
            recording,
            lease_ms=self._lease_ms,
            most_bytes=self._answer_bytes,
        )

    async def keep(self, request: KeyedRequest, token: str, recording: Recording) -> None:
        """Raises RecordsUnavailable: the copy is not complete."""
        copy, head = self._copies.get(token), recording.head
        if copy is None or head is None or not await copy.written():
            await self._end_copy(token)
            raise RecordsUnavailable("the copy of the answer in Redis is not complete")
        keys, now_ms = AnswerKeys(request, token), int(time.time() * 1000)
        size = OVERHEAD_BYTES + recording.held_bytes
        quotas = self._quotas
        args = (
            ANSWERS,
            request.id.hex(),
            token,
            request.tenant.hex(),
            head.as_json(),
            recording.count,
            size,
            now_ms,
            int(quotas.keep_s * 1000),
            quotas.answers,
            quotas.bytes,
        )
        try:
            await self._call(self._keep((keys.record, keys.parts), args))
        finally:
            await self._end_copy(token)

    async def release(self, request: KeyedRequest, token: str) -> None:
        """After the copy has its end, for those who read it."""
        if (copy := self._copies.get(token)) is not None:
            await copy.written()
        await self._end_copy(token)
        record = AnswerKeys(request, token).record
        with contextlib.suppress(RecordsUnavailable):
            await self._call(self._release((record,), (token,)))

    async def stored_bytes(self) -> int:
        """What expired since the last answer that was kept still counts."""
        return int(await self._call(self._client.get(f"{ANSWERS}bytes")) or 0)

    async def close(self) -> None:
        for token in list(self._copies):
            await self._end_copy(token)

    async def _end_copy(self, token: str) -> None:
        copy = self._copies.pop(token, None)
        if copy is not None:
            await copy.close()

    async def _call(self, call: Awaitable[Any]) -> Any:
        try:
            return await call
        except FAILURES as error:
            self._redis.lose(error)
            if not self._redis.is_away:  # it concerns this answer only
                logger.warning(
                    "idempotency: redis cannot be used",
                    error=str(error),
                    advice="look at the server that LEDGER_URL names",
                )
            raise RecordsUnavailable(str(error)) from error


class Copy:
    """Writes a running answer to Redis, and renews its claim. While somebody reads the copy, the
    generation counts one more reader. Where Redis fails, the copy ends: the answer itself does not.
    The copy of a private answer says that it is private, and nothing else.

    lease_ms: for how long the claim stands after the last renewal. most_bytes: of the stream; its
    oldest entries make room.
    """

    def __init__(
        self,
        client: Any,
        renew: AsyncScript,
        keys: AnswerKeys,
        recording: Recording,
        *,
        lease_ms: int,
        most_bytes: int,
    ) -> None:
        self._client = client
        self._renew = renew
        self._keys = keys
        self._recording = recording
        self._lease_ms = lease_ms
        self._most_bytes = most_bytes
        self._entries: deque[tuple[bytes, int]] = deque()
        self._bytes = 0
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
        try:
            try:
                await self._write_parts()
            except AnswerLost:
                await self._add(LOST)
                return False
        except FAILURES:
            return False
        return True

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
                await self._trim()
        await self._add(END)

    async def _add(self, kind: bytes, first: int = 0, parts: int = 0, data: bytes = b"") -> None:
        fields = {b"k": kind, b"f": first, b"n": parts, b"d": data}
        entry = await self._client.xadd(self._keys.parts, fields)
        if kind is PART:
            self._entries.append((entry, len(data)))
            self._bytes += len(data)
        elif kind is not END:
            await self._client.pexpire(self._keys.parts, self._lease_ms)

    async def _trim(self) -> None:
        """Where the head is gone, nobody can join from the beginning."""
        if self._bytes <= self._most_bytes or len(self._entries) < 2:
            return
        while self._bytes > self._most_bytes and len(self._entries) > 1:
            self._bytes -= self._entries.popleft()[1]
        await self._client.xtrim(self._keys.parts, minid=self._entries[0][0], approximate=False)

    async def _beat(self) -> None:
        keys = (self._keys.record, self._keys.parts, self._keys.readers)
        while True:
            await asyncio.sleep(self._lease_ms / 4000)
            with contextlib.suppress(*FAILURES):
                renewed = await self._renew(keys, (self._keys.token, self._lease_ms))
                self._recording.count_in(self._reader, all(renewed))


class CopiedAnswer(OpenAnswer):
    """An answer that is read in Redis, while it is written or after that."""

    def __init__(
        self,
        client: Any,
        keys: AnswerKeys,
        after: int,
        outcome: Outcome,
        *,
        lease_ms: int,
    ) -> None:
        self.outcome = outcome
        self._client = client
        self._keys = keys
        self._after = after
        self._lease_ms = lease_ms
        self._last = b"0-0"
        self._entries: deque[tuple[bytes, dict[bytes, bytes]]] = deque()

    async def head(self) -> Head:
        fields = await self._next()
        if fields[b"k"] == PART:
            raise JoinRefused(Reason.NOT_KEPT if self._after else Reason.TOO_LARGE)
        if fields[b"k"] == PRIVATE:
            raise JoinRefused(Reason.PRIVATE)
        if fields[b"k"] != HEAD:
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
        loop = asyncio.get_running_loop()
        ends = loop.time() + LAG_S
        while True:
            known, is_whole = await self._written()
            if known >= self._after or is_whole or loop.time() >= ends:
                return known
            await asyncio.sleep(LOOK_S)

    async def _written(self) -> tuple[int, bool]:
        """How many parts are here, and whether no more will come."""
        is_whole = False
        try:
            for _, fields in await self._client.xrevrange(self._keys.parts, count=2):
                if fields[b"k"] == PART:
                    return int(fields[b"f"]) + int(fields[b"n"]), is_whole
                is_whole = is_whole or fields[b"k"] in (END, LOST)
        except FAILURES as error:
            raise RecordsUnavailable(str(error)) from error
        return 0, is_whole

    async def _next(self) -> dict[bytes, bytes]:
        """Raises AnswerLost, RecordsUnavailable."""
        try:
            while not self._entries:
                await self._read()
        except FAILURES as error:
            raise RecordsUnavailable(str(error)) from error
        self._last, fields = self._entries.popleft()
        return fields

    async def _read(self) -> None:
        await self._client.set(self._keys.readers, b"", px=self._lease_ms)
        found = await self._client.xread(
            {self._keys.parts: self._last}, count=READ_ENTRIES, block=BLOCK_MS
        )
        if found:
            self._entries.extend(found[0][1])
        elif await self._client.hget(self._keys.record, "token") != self._keys.token.encode():
            raise AnswerLost
