"""The responses of several proxies, in Redis or Valkey. Implements responses.ResponseStore.

A response that is generated in the background is a stream of entries: events, and the engine's
deltas that they came from. Whoever generates it renews a lease; after its end, another proxy takes
the response and continues it.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Awaitable, Sequence
from secrets import token_hex
from typing import Any

import structlog

from proxy.domain.delta_log import NumberedDelta
from proxy.state import redis_scripts
from proxy.state.redis_connection import BLOCK_MS, FAILURES, RESPONSES, RedisConnection
from proxy.state.responses import (
    TENANT_RESPONSES,
    Claim,
    EventsNotKept,
    KeptResponse,
    LostJob,
    ResponseKey,
    ResponseLimits,
    ResponsesUnavailable,
    deltas_as_json,
    deltas_of_json,
)

logger = structlog.get_logger(__name__)

LEASE_MS = 10_000
MOST_ENTRIES = 100_000  # of one response's events, which are mostly one a token
READ_ENTRIES = 256
RUNNING = f"{RESPONSES}running"
SEPARATOR = b"\n\n"  # of events


class RedisResponses:
    """lease_ms: for how long a claim stands after its last renewal."""

    def __init__(
        self, redis: RedisConnection, limits: ResponseLimits, *, lease_ms: int = LEASE_MS
    ) -> None:
        self.limits = limits
        self.lease_ms = lease_ms
        self._redis = redis
        self._client = redis.answers
        script = redis.answers.register_script
        self._keep = script(redis_scripts.KEEP)
        self._append = script(redis_scripts.APPEND)
        self._finish = script(redis_scripts.FINISH)
        self._take = script(redis_scripts.TAKE)
        self._renew = script(redis_scripts.RENEW_RESPONSE)
        self._counts: dict[str, int] = {}  # events so far, by the token of the claim

    async def put(self, key: ResponseKey, kept: KeptResponse) -> None:
        await self._call(self._client.hset(_record(key), mapping=_fields(kept)))
        await self._put(key, kept)

    async def get(self, key: ResponseKey) -> KeptResponse | None:
        found = await self._call(self._client.hmget(_record(key), "head", "input"))
        return None if found[0] is None else KeptResponse(response=found[0], input=found[1])

    async def delete(self, key: ResponseKey) -> bool:
        """What it held counts until it would have expired."""
        await self._call(self._client.zrem(RUNNING, key.id.hex()))
        return bool(await self._call(self._client.delete(_record(key), _events(key))))

    async def begin(self, key: ResponseKey, kept: KeptResponse, job: bytes) -> Claim:
        claim = Claim(key=key, token=token_hex(16))
        fields = {**_fields(kept), "job": job, "owner": claim.token, "tenant": key.tenant.hex()}
        await self._call(self._client.hset(_record(key), mapping=fields))
        await self._call(self._client.pexpire(_record(key), self._keep_ms))
        await self._call(self._client.zadd(RUNNING, {key.id.hex(): self._lease_ends}))
        self._counts[claim.token] = 0
        return claim

    async def append(
        self, claim: Claim, events: Sequence[bytes], deltas: Sequence[NumberedDelta]
    ) -> bool:
        first = self._counts[claim.token]
        text = b"".join(events)
        written = (first, len(events), text, deltas_as_json(deltas))
        args = (claim.token, *written, MOST_ENTRIES, self._keep_ms)
        self._counts[claim.token] = first + len(events)
        keys = (_record(claim.key), _events(claim.key))
        return bool(await self._call(self._append(keys, args)))

    async def finish(self, claim: Claim, kept: KeptResponse) -> None:
        self._counts.pop(claim.token, None)
        key = claim.key
        if await self._call(self._client.hget(_record(key), "owner")) == claim.token.encode():
            await self._put(key, kept)
            keys = (_record(key), _events(key), RUNNING)
            await self._call(self._finish(keys, (claim.token, key.id.hex())))

    async def events(self, key: ResponseKey, after: int) -> AsyncGenerator[bytes, None]:
        last, expected = b"0-0", None
        while True:
            found = await self._call(
                self._redis.readers.xread({_events(key): last}, count=READ_ENTRIES, block=BLOCK_MS)
            )
            if not found and not await self._call(self._client.hexists(_record(key), "job")):
                raise EventsNotKept
            for id, fields in found[0][1] if found else ():
                last = id
                if b"end" in fields:
                    return
                first, count = int(fields[b"f"]), int(fields[b"n"])
                if first > after and expected is None:
                    raise EventsNotKept  # the oldest were dropped
                expected = first + count
                if expected > after:
                    yield _behind(fields[b"e"], max(after - first, 0))

    async def cancel(self, key: ResponseKey) -> None:
        if await self._call(self._client.hexists(_record(key), "job")):
            await self._call(self._client.hset(_record(key), "cancelled", "1"))

    async def lost(self) -> LostJob | None:
        token, now_ms = token_hex(16), int(time.time() * 1000)
        found = await self._call(self._take((RUNNING,), (RESPONSES, now_ms, self.lease_ms, token)))
        if not found:
            return None
        name, takes = found[0].decode(), int(found[1])
        record = f"{RESPONSES}r:{name}"
        names = ("job", "input", "tenant")
        job, given, tenant = await self._call(self._client.hmget(record, *names))
        id, tenant = bytes.fromhex(name), bytes.fromhex(tenant.decode())
        key = ResponseKey(id=id, tenant=tenant)
        events, deltas = 0, list[NumberedDelta]()
        page, last = None, "-"
        while page is None or page:
            page = await self._call(self._client.xrange(_events(key), min=last, count=READ_ENTRIES))
            for entry, fields in page:
                last = b"(" + entry
                events = int(fields[b"f"]) + int(fields[b"n"])
                deltas += deltas_of_json(fields[b"d"])
        self._counts[token] = events
        claim = Claim(key=key, token=token)
        return LostJob(claim=claim, job=job, input=given, events=events, deltas=deltas, takes=takes)

    async def renew(self, claims: Sequence[Claim]) -> Sequence[Claim]:
        over = []
        for claim in claims:
            args = (claim.token, claim.key.id.hex(), self._lease_ends)
            if not await self._call(self._renew((_record(claim.key), RUNNING), args)):
                over.append(claim)
        return over

    async def release(self, claims: Sequence[Claim]) -> None:
        for claim in claims:
            try:
                await self._client.zadd(RUNNING, {claim.key.id.hex(): 0}, xx=True)
            except FAILURES:
                return  # the lease ends by itself

    async def remove_expired(self) -> int:
        """What expired since the last response that was kept still counts."""
        return int(await self._call(self._client.get(f"{RESPONSES}bytes")) or 0)

    @property
    def _keep_ms(self) -> int:
        return int(self.limits.keep_s * 1000)

    @property
    def _lease_ends(self) -> int:
        return int(time.time() * 1000) + self.lease_ms

    async def _put(self, key: ResponseKey, kept: KeptResponse) -> None:
        now_ms = int(time.time() * 1000)
        bounds = (TENANT_RESPONSES, self.limits.bytes)
        place = (RESPONSES, key.id.hex(), redis_scripts.KEPT, key.tenant.hex())
        args = (*place, kept.response, 0, kept.size_bytes, now_ms, self._keep_ms, *bounds)
        await self._call(self._keep((_record(key), _events(key)), args))

    async def _call(self, call: Awaitable[Any]) -> Any:
        """Raises ResponsesUnavailable."""
        if self._redis.is_away:
            call.close()  # type: ignore[attr-defined]
            raise ResponsesUnavailable("redis is away")
        try:
            return await call
        except FAILURES as error:
            self._redis.lose(error)
            raise ResponsesUnavailable(str(error)) from error


def _record(key: ResponseKey) -> str:
    return f"{RESPONSES}r:{key.id.hex()}"


def _events(key: ResponseKey) -> str:
    return f"{RESPONSES}p:{key.id.hex()}:{redis_scripts.KEPT}"


def _fields(kept: KeptResponse) -> dict[str, Any]:
    return {"token": redis_scripts.KEPT, "head": kept.response, "input": kept.input}


def _behind(events: bytes, count: int) -> bytes:
    """Without the first `count` events."""
    for _ in range(count):
        events = events[events.index(SEPARATOR) + len(SEPARATOR) :]
    return events
