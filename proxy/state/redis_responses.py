"""The responses of several proxies, in Redis or Valkey. Implements responses.ResponseStore.

A response that is generated in the background is a stream of entries: events, and the engine's
deltas that they came from. Whoever generates it renews a lease; after its end, another proxy takes
the response and continues it.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from secrets import token_hex
from typing import Any

from proxy.domain.delta_log import NumberedDelta
from proxy.state import redis_scripts
from proxy.state.redis_connection import (
    FAILURES,
    RESPONSES,
    RedisConnection,
)
from proxy.state.redis_streams import StreamFollower
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

LEASE_MS = 10_000
MOST_ENTRIES = 100_000  # of one response's events, which are mostly one a token
RUNNING = f"{RESPONSES}running"
SEPARATOR = b"\n\n"  # of events


@dataclass(slots=True)
class Written:
    """By the owner of a claim. events: of all owners."""

    events: int = 0
    entries: int = 0


class RedisResponses:
    """lease_ms: for how long a claim stands after its last renewal. A claim that was not renewed
    because Redis was away stands, so that its owner waits for Redis.
    """

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
        self._streams = StreamFollower(redis, RESPONSES)
        self._written: dict[str, Written] = {}  # by the token of the claim

    async def put(self, key: ResponseKey, kept: KeptResponse) -> None:
        await self._write(key, _fields(kept))
        await self._put(key, kept)

    async def response(self, key: ResponseKey) -> bytes | None:
        return await self._field(key, "head")

    async def input(self, key: ResponseKey) -> bytes | None:
        return await self._field(key, "input")

    async def delete(self, key: ResponseKey) -> bool:
        """What it held counts until it would have expired."""
        await self._call(key.tenant, self._client.zrem, RUNNING, key.id.hex())
        return bool(await self._call(key.tenant, self._client.delete, _record(key), _events(key)))

    async def begin(self, key: ResponseKey, kept: KeptResponse, job: bytes) -> Claim:
        claim = Claim(key=key, token=token_hex(16))
        fields = {**_fields(kept), "job": job, "owner": claim.token, "tenant": key.tenant.hex()}
        await self._write(key, fields)
        await self.renew([claim])
        self._written[claim.token] = Written()
        return claim

    async def append(
        self, claim: Claim, events: Sequence[bytes], deltas: Sequence[NumberedDelta]
    ) -> bool:
        """Waits for Redis as long as it takes."""
        written = self._written[claim.token]
        written.entries += 1
        entry = (written.events, len(events), b"".join(events), deltas_as_json(deltas))
        args = (claim.token, written.entries, *entry, MOST_ENTRIES, self._keep_ms)
        written.events += len(events)
        return bool(await self._insist(claim.key, self._append, _keys(claim.key), args))

    async def finish(self, claim: Claim, kept: KeptResponse) -> None:
        """Waits for Redis as long as it takes."""
        self._written.pop(claim.token, None)
        key = claim.key
        owner = await self._insist(key, self._client.hget, _record(key), "owner")
        if owner == claim.token.encode():
            await self._put(key, kept, patience_s=math.inf)
            await self._insist(
                key, self._finish, (*_keys(key), RUNNING), (claim.token, key.id.hex())
            )

    async def events(self, key: ResponseKey, after: int) -> AsyncGenerator[bytes, None]:
        expected = None
        is_running = await self._is_running(key)
        async with aclosing(self._streams.pages(_events(key), key.tenant)) as pages:
            while True:
                try:
                    page = await anext(pages)
                except FAILURES as error:
                    raise ResponsesUnavailable(str(error)) from error
                if not page and not is_running:
                    raise EventsNotKept
                if not page:
                    is_running = await self._is_running(key)
                for _, fields in page:
                    if b"end" in fields:
                        return
                    first, count = int(fields[b"f"]), int(fields[b"n"])
                    if first > after and expected is None:
                        raise EventsNotKept  # the oldest were dropped
                    expected = first + count
                    if expected > after:
                        yield _behind(fields[b"e"], max(after - first, 0))

    async def cancel(self, key: ResponseKey) -> None:
        if await self._is_running(key):
            await self._call(key.tenant, self._client.hset, _record(key), "cancelled", "1")

    async def lost(self) -> LostJob | None:
        """After an outage, waits for a lease: the owners renew theirs first."""
        token, now_ms = token_hex(16), int(time.time() * 1000)
        expired = now_ms if self._redis.is_steady(self.lease_ms / 1000) else 0
        args = (RESPONSES, expired, self._lease_ends, token)
        found = await self._call(b"", self._take, (RUNNING,), args)
        if not found:
            return None
        name, is_lost = found[0].decode(), int(found[1])
        record = f"{RESPONSES}r:{name}"
        names = ("job", "input", "tenant", "takes")
        job, given, tenant, takes = await self._call(
            b"", self._client.hmget, record, *names, patience_s=math.inf
        )
        if job is None:
            return None  # it was deleted meanwhile
        key = ResponseKey(id=bytes.fromhex(name), tenant=bytes.fromhex(tenant.decode()))
        takes = int(takes or 0) + is_lost
        await self._insist(key, self._client.hset, record, "takes", takes)
        written, deltas = Written(), list[NumberedDelta]()
        page, last = None, b"0-0"
        while page is None or page:
            page = await self._streams.page(_events(key), last, key.tenant, math.inf)
            for entry, fields in page:
                last, written.events = entry, int(fields[b"f"]) + int(fields[b"n"])
                deltas += deltas_of_json(fields[b"d"])
        self._written[token] = written
        return LostJob(
            claim=Claim(key=key, token=token),
            job=job,
            input=given,
            events=written.events,
            deltas=deltas,
            takes=takes,
        )

    async def renew(self, claims: Sequence[Claim]) -> Sequence[Claim]:
        stand = await asyncio.gather(*map(self._stands, claims))
        return [claim for claim, stands in zip(claims, stand, strict=True) if not stands]

    async def _stands(self, claim: Claim) -> bool:
        """A claim that cannot be renewed stands until Redis says something else."""
        keys, args = (_record(claim.key), RUNNING), (claim.token, claim.key.id.hex())
        try:
            ends = self._lease_ends
            return bool(await self._call(claim.key.tenant, self._renew, keys, (*args, ends)))
        except ResponsesUnavailable:
            return True

    async def release(self, claims: Sequence[Claim]) -> None:
        for claim in claims:
            args = (RUNNING, {claim.key.id.hex(): 0})
            try:
                await self._call(claim.key.tenant, self._client.zadd, *args, xx=True)
            except ResponsesUnavailable:
                return  # the lease ends by itself

    async def remove_expired(self) -> int:
        """What expired since the last response that was kept still counts."""
        return int(await self._call(b"", self._client.get, f"{RESPONSES}bytes") or 0)

    @property
    def _keep_ms(self) -> int:
        return int(self.limits.keep_s * 1000)

    @property
    def _lease_ends(self) -> int:
        return int(time.time() * 1000) + self.lease_ms

    async def _field(self, key: ResponseKey, name: str) -> bytes | None:
        read, record = self._client.hget, _record(key)
        found: bytes | None = await self._call(
            key.tenant, read, record, name, patience_s=self._redis.patience_s
        )
        return found

    async def _is_running(self, key: ResponseKey) -> bool:
        return await self._field(key, "owner") is not None

    async def _write(self, key: ResponseKey, fields: dict[str, Any]) -> None:
        """At once: a record that is never finished expires."""
        both = self._client.pipeline()
        both.hset(_record(key), mapping=fields).pexpire(_record(key), self._keep_ms)
        await self._call(key.tenant, both.execute)

    async def _put(self, key: ResponseKey, kept: KeptResponse, patience_s: float = 0.0) -> None:
        now_ms = int(time.time() * 1000)
        bounds = (TENANT_RESPONSES, self.limits.bytes)
        place = (RESPONSES, key.id.hex(), redis_scripts.KEPT, key.tenant.hex())
        args = (*place, kept.response, 0, kept.size_bytes, now_ms, self._keep_ms, *bounds)
        await self._call(key.tenant, self._keep, _keys(key), args, patience_s=patience_s)

    async def _insist(
        self, key: ResponseKey, command: Callable[..., Awaitable[Any]], *args: Any
    ) -> Any:
        return await self._call(key.tenant, command, *args, patience_s=math.inf)

    async def _call(
        self,
        tenant: bytes,
        command: Callable[..., Awaitable[Any]],
        *args: Any,
        **options: Any,
    ) -> Any:
        """As RedisConnection.call. Raises ResponsesUnavailable."""
        try:
            return await self._redis.call(tenant, command, *args, **options)
        except FAILURES as error:
            raise ResponsesUnavailable(str(error)) from error


def _record(key: ResponseKey) -> str:
    return f"{RESPONSES}r:{key.id.hex()}"


def _keys(key: ResponseKey) -> tuple[str, str]:
    return _record(key), _events(key)


def _events(key: ResponseKey) -> str:
    return f"{RESPONSES}p:{key.id.hex()}:{redis_scripts.KEPT}"


def _fields(kept: KeptResponse) -> dict[str, Any]:
    return {"token": redis_scripts.KEPT, "head": kept.response, "input": kept.input}


def _behind(events: bytes, count: int) -> bytes:
    """Without the first `count` events."""
    for _ in range(count):
        events = events[events.index(SEPARATOR) + len(SEPARATOR) :]
    return events
