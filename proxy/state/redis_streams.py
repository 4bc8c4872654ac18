"""The streams of several proxies, in Redis or Valkey. Implements streams.StreamStore.

Whoever writes a stream renews a lease. After its end, another proxy takes a stream with a job and
continues it; others are gone.
"""

from __future__ import annotations

import math
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any

import structlog
from pydantic import ConfigDict, TypeAdapter

from proxy.domain.delta_log import NumberedDelta
from proxy.state import redis_scripts
from proxy.state.redis_connection import FAILURES, PREFIX, RedisConnection
from proxy.state.stream_follower import StreamFollower
from proxy.state.streams import (
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
    StreamsUnavailable,
)

logger = structlog.get_logger(__name__)

LEASE_MS = 10_000
_DELTAS: TypeAdapter[list[NumberedDelta]] = TypeAdapter(
    list[NumberedDelta], config=ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")
)


class RedisStreams:
    """kind: the name of their slot of a cluster. lease_ms: for how long a claim stands after its
    last renewal.
    """

    is_shared = True

    def __init__(
        self, redis: RedisConnection, kind: str, limits: StreamLimits, *, lease_ms: int = LEASE_MS
    ) -> None:
        self.limits = limits
        self.lease_s = lease_ms / 1000
        self._redis = redis
        self._prefix = f"{PREFIX}{{{kind}}}:"
        self._times_ms = lease_ms, int(limits.keep_s * 1000)
        self._client = redis.answers
        self._script = self._client.register_script(redis_scripts.STREAMS)
        self._follower = StreamFollower(redis, self._prefix)

    async def claim(self, claim: Claim, fields: Mapping[str, bytes]) -> FoundStream | None:
        tenant = claim.key.tenant.hex()
        found = await self._run("claim", claim, "tenant", tenant, *_flat(fields))
        return self._found(claim.key, found)

    async def append(
        self, claim: Claim, kind: Kind, parts: Parts = (), deltas: Deltas = ()
    ) -> bool:
        first = claim.parts
        claim.entries += 1
        claim.parts += len(parts) if kind is Kind.PARTS else 0
        sizes = " ".join(str(len(part)) for part in parts)
        entry = (kind.value, first, sizes, b"".join(parts), deltas_as_json(deltas))
        args = (claim.entries, claim.parts, claim.most_entries, *entry)
        return bool(await self._run("append", claim, *args, patience_s=claim.patience_s))

    async def renew(self, claim: Claim) -> tuple[bool, bool]:
        stands, is_read = await self._run("renew", claim)
        return bool(stands), bool(is_read)

    async def keep(self, claim: Claim, fields: Mapping[str, bytes]) -> None:
        most = (self.limits.tenant_streams, self.limits.kept_bytes, claim.most_entries)
        args = (OVERHEAD_BYTES, *most, *_flat(fields))
        await self._run("keep", claim, *args, patience_s=claim.patience_s)

    async def release(self, claim: Claim) -> None:
        await self._run("release", claim)

    async def find(self, key: StreamKey) -> FoundStream | None:
        patience_s = self._redis.patience_s
        return self._found(key, await self._run("find", key, patience_s=patience_s))

    async def field(self, key: StreamKey, name: str) -> bytes | None:
        found: bytes | None = await self._read(key, self._client.hget, self._record(key), name)
        return found

    async def delete(self, key: StreamKey) -> bool:
        return bool(await self._run("delete", key))

    async def cancel(self, key: StreamKey) -> None:
        await self._run("cancel", key)

    async def take(self) -> LostStream | None:
        """After an outage, waits for a lease: the owners renew theirs first."""
        claim = Claim(StreamKey(id=b"", tenant=b""), math.inf)
        taken = await self._run("take", claim, int(self._redis.is_steady(self.lease_s)))
        if taken is None:
            return None
        id, tenant, takes, parts, log, given, job = taken
        claim.key = key = StreamKey(id=_unhex(id), tenant=_unhex(tenant))
        claim.parts = int(parts or 0)
        deltas: list[NumberedDelta] = []
        name, last = self._entries(key, log), b"0-0"
        while page := await self._follower.page(name, last, key.tenant, math.inf):
            last = page[-1][0]
            for _, fields in page:
                deltas += deltas_of_json(fields[b"x"])
        return LostStream(claim=claim, job=job, input=given, deltas=deltas, takes=int(takes))

    async def stored_bytes(self) -> int:
        """What expired since the last stream that was kept still counts."""
        return int(await self._call(b"", self._client.get, f"{self._prefix}bytes") or 0)

    def _found(self, key: StreamKey, given: Sequence[Any] | None) -> FoundStream | None:
        if given is None or given[0] is None:
            return None
        log, body, parts, owner, has_ended = given
        has_end = owner is None or has_ended is not None
        return FoundStream(
            body=body,
            parts=int(parts or 0),
            is_kept=owner is None,
            has_end=has_end,
            pages=lambda after: self._pages(key, log, has_end),
        )

    async def _pages(
        self, key: StreamKey, log: bytes, has_end: bool
    ) -> AsyncGenerator[list[Entry], None]:
        readers, counts_until = f"{self._prefix}w:{key.id.hex()}:{log.decode()}", 0.0
        async with aclosing(self._follower.pages(self._entries(key, log), key.tenant)) as pages:
            while True:
                if time.monotonic() >= counts_until:
                    counts_until = time.monotonic() + self.lease_s / 4
                    lease_ms = self._times_ms[0]
                    await self._read(key, self._client.set, readers, b"", px=lease_ms)
                try:
                    page = await anext(pages)
                except FAILURES as error:
                    raise StreamsUnavailable(str(error)) from error
                if page:
                    yield [_entry(fields) for _, fields in page]
                elif has_end:
                    raise StreamLost
                else:
                    found = await self._read(
                        key, self._client.hmget, self._record(key), "log", "owner"
                    )
                    has_end = found[0] != log or found[1] is None

    async def _run(
        self, operation: str, of: Claim | StreamKey, *args: Any, patience_s: float = 0.0
    ) -> Any:
        key, token = (of.key, of.token) if isinstance(of, Claim) else (of, "")
        given = (operation, self._prefix, key.id.hex(), token, *self._times_ms, *args)
        names = (self._record(key),)
        return await self._call(key.tenant, self._script, names, given, patience_s=patience_s)

    async def _read(
        self, key: StreamKey, command: Callable[..., Awaitable[Any]], *args: Any, **options: Any
    ) -> Any:
        patience_s = self._redis.patience_s
        return await self._call(key.tenant, command, *args, patience_s=patience_s, **options)

    async def _call(
        self, tenant: bytes, command: Callable[..., Awaitable[Any]], *args: Any, **options: Any
    ) -> Any:
        """As RedisConnection.call. Raises StreamsUnavailable."""
        try:
            return await self._redis.call(tenant, command, *args, **options)
        except FAILURES as error:
            if not self._redis.is_away:  # it concerns this stream only
                logger.warning(
                    "kept streams: redis cannot be used",
                    error=str(error),
                    advice="look at the server that LEDGER_URL names",
                )
            raise StreamsUnavailable(str(error)) from error

    def _record(self, key: StreamKey) -> str:
        return f"{self._prefix}r:{key.id.hex()}"

    def _entries(self, key: StreamKey, log: bytes) -> str:
        return f"{self._prefix}p:{key.id.hex()}:{log.decode()}"


def deltas_as_json(deltas: Deltas) -> bytes:
    return _DELTAS.dump_json(list(deltas)) if deltas else b"[]"


def deltas_of_json(data: bytes) -> list[NumberedDelta]:
    return _DELTAS.validate_json(data) if data else []


def _entry(fields: Mapping[bytes, bytes]) -> Entry:
    parts, data, at = [], fields[b"d"], 0
    for size in map(int, fields[b"s"].split()):
        parts.append(data[at : at + size])
        at += size
    return Entry(Kind(fields[b"k"].decode()), int(fields[b"f"]), parts)


def _flat(fields: Mapping[str, bytes]) -> list[str | bytes]:
    return [each for pair in fields.items() for each in pair]


def _unhex(text: bytes) -> bytes:
    return bytes.fromhex(text.decode())
