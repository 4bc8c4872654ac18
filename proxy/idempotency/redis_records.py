"""The records of several proxies, in Redis or Valkey. Implements port.Records.

A claim stands for as long as its owner renews it. Everything has a time to live.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Awaitable
from typing import Any

import structlog
from redis import asyncio as redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from typing_extensions import Self

from proxy.idempotency import redis_scripts
from proxy.idempotency.answer import (
    Head,
    JoinRefused,
    OpenAnswer,
    Outcome,
    Reason,
    RecordsUnavailable,
    check_resumption,
)
from proxy.idempotency.quotas import Quotas
from proxy.idempotency.recording import Recording
from proxy.idempotency.redis_stream import (
    AWAY,
    BLOCK_MS,
    AnswerKeys,
    CopiedAnswer,
    Copy,
)
from proxy.idempotency.request import KeyedRequest
from proxy.ledger.redis_state import Script

logger = structlog.get_logger(__name__)

PREFIX = "triton-openai:{idempotency}:"
LEASE_MS = 10_000
COMMANDS = 64  # connections
READERS = 512  # each reader of another host's answer waits on one
OVERHEAD_BYTES = 1024  # of a record in Redis, beside its parts


class RedisRecords:
    """answer_bytes: of a running answer that others may read."""

    def __init__(
        self,
        url: str,
        quotas: Quotas,
        *,
        answer_bytes: int,
        timeout_s: float,
        lease_ms: int = LEASE_MS,
    ) -> None:
        self._client = _client(url, COMMANDS, timeout_s, timeout_s)
        self._reading = _client(url, READERS, timeout_s, timeout_s + BLOCK_MS / 1000)
        self._quotas = quotas
        self._answer_bytes = answer_bytes
        self._lease_ms = lease_ms
        self._copies: dict[str, Copy] = {}
        self._claim = Script(redis_scripts.CLAIM)
        self._renew = Script(redis_scripts.RENEW)
        self._release = Script(redis_scripts.RELEASE)
        self._keep = Script(redis_scripts.KEEP)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        for token in list(self._copies):
            await self._end_copy(token)
        await self._client.aclose()
        await self._reading.aclose()

    async def claim(self, request: KeyedRequest, token: str) -> OpenAnswer | None:
        record = _keys(request, token).record
        args = (token, request.body, self._lease_ms)
        found = await self._call(self._claim(self._client, (record,), args))
        if found is None:
            return None
        other, body, state, head, parts = found
        if body != request.body:
            raise JoinRefused(Reason.OTHER_BODY)
        outcome = Outcome.JOINED
        if state == b"kept":
            check_resumption(request.after, Head.of_json(head), int(parts))
            outcome = Outcome.REPLAYED
        token = other.decode()
        return CopiedAnswer(
            self._reading,
            _keys(request, token),
            token,
            request,
            outcome,
            lease_ms=self._lease_ms,
        )

    def published(self, request: KeyedRequest, token: str, recording: Recording) -> None:
        self._copies[token] = Copy(
            *(self._client, self._renew, _keys(request, token), token, recording),
            lease_ms=self._lease_ms,
            most_bytes=self._answer_bytes,
        )

    async def keep(self, request: KeyedRequest, token: str, recording: Recording) -> None:
        """Raises RecordsUnavailable: the copy is not complete."""
        copy, head = self._copies.get(token), recording.head
        if copy is None or head is None or not await copy.written():
            await self._end_copy(token)
            raise RecordsUnavailable("the copy of the answer in Redis is not complete")
        keys, now_ms = _keys(request, token), int(time.time() * 1000)
        size = OVERHEAD_BYTES + recording.held_bytes
        quotas = self._quotas
        args = (
            *(PREFIX, request.id.hex(), token, request.tenant.hex(), head.as_json()),
            *(recording.count, size, now_ms, int(quotas.keep_s * 1000)),
            *(quotas.answers, quotas.bytes),
        )
        try:
            await self._call(self._keep(self._client, (keys.record, keys.parts), args))
        finally:
            await self._end_copy(token)

    async def release(self, request: KeyedRequest, token: str) -> None:
        """After the copy has its end, for those who read it."""
        if (copy := self._copies.get(token)) is not None:
            await copy.written()
        await self._end_copy(token)
        record = _keys(request, token).record
        with contextlib.suppress(RecordsUnavailable):
            await self._call(self._release(self._client, (record,), (token,)))

    async def stored_bytes(self) -> int:
        """What expired since the last answer that was kept still counts."""
        return int(await self._call(self._client.get(f"{PREFIX}bytes")) or 0)

    async def _end_copy(self, token: str) -> None:
        copy = self._copies.pop(token, None)
        if copy is not None:
            await copy.close()

    async def _call(self, call: Awaitable[Any]) -> Any:
        try:
            return await call
        except AWAY as error:
            logger.warning(
                "idempotency: redis cannot be used",
                error=str(error),
                advice="look at the server that LEDGER_URL names",
            )
            raise RecordsUnavailable(str(error)) from error


def _keys(request: KeyedRequest, token: str) -> AnswerKeys:
    one = request.id.hex()
    return AnswerKeys(
        record=f"{PREFIX}r:{one}",
        parts=f"{PREFIX}p:{one}:{token}",
        readers=f"{PREFIX}w:{one}:{token}",
    )


def _client(url: str, connections: int, connect_s: float, answer_s: float) -> Any:
    pool = redis.ConnectionPool.from_url(
        url,
        max_connections=connections,
        socket_connect_timeout=connect_s,
        socket_timeout=answer_s,
        retry=Retry(NoBackoff(), 0),
    )
    return redis.Redis.from_pool(pool)
