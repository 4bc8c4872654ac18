"""API keys of the store -> callers, with what is known of them in memory."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import datetime
from hmac import compare_digest
from typing import Generic, TypeVar

import structlog
from anyio import CapacityLimiter
from cachetools import LRUCache, TTLCache

from proxy.access.authentication import api_key
from proxy.domain.errors import AuthenticationFailed, ErrorCode, RequestError, echoed
from proxy.domain.identity import Caller, lowest_ceiling
from proxy.domain.key_records import KeyRecord, KeySource, KeysUnavailable, TenantRecord

POLL_S = 0.25
READ_TIMEOUT_S = 2.0
OUTAGE_S = 60.0  # for which known keys keep working while the store cannot be reached
MOST_RECORDS = 10_000
ABSENT_S = 10.0  # how long an unknown name is remembered, if nothing changes in the store
LOOKUP_TIMEOUT_S = 2.0
LOOKUPS_AT_ONCE, LOOKUPS_WAITING = 8, 256

logger = structlog.get_logger(__name__)
Record = TypeVar("Record")


NOT_FOUND = (-1, None)


class RecordCache(Generic[Record]):
    """Remembers what a slow lookup by name finds, and for a short time what it does not.

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
    ) -> None:
        self._lookup = lookup
        self._is_trusted = is_trusted
        self._found: LRUCache[str, tuple[int, Record]] = LRUCache(MOST_RECORDS)  # with the epoch
        self._absent: TTLCache[str, bool] = TTLCache(MOST_RECORDS, ABSENT_S, timer=clock)
        self._in_flight: dict[str, asyncio.Task[Record | None]] = {}
        self._epoch = 0
        self._slots = CapacityLimiter(LOOKUPS_AT_ONCE)
        self._slots_of_former = CapacityLimiter(LOOKUPS_AT_ONCE)

    async def find(self, name: str) -> Record | None:
        """The record, from memory if it is there; None if no record has this name.

        Raises:
            KeysUnavailable: the lookup failed or took too long, or too many are waiting.
        """
        if self._is_trusted():
            epoch, record = self._found.get(name, NOT_FOUND)
            if epoch == self._epoch:
                return record
            if name in self._absent:
                return None
        task = self._in_flight.get(name)
        if task is None:
            task = asyncio.ensure_future(self._looked_up(name, self._epoch))
            self._in_flight[name] = task
            task.add_done_callback(lambda done: self._end(name, done))
        return await asyncio.shield(task)

    def drop(self) -> None:
        """What was found must be read again; lookups in progress are not remembered."""
        self._epoch += 1
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
            self._absent[name] = True
        else:
            self._found[name] = (epoch, record)
        return record

    async def _in_a_slot(self, name: str) -> Record | None:
        slots = self._slots_of_former if name in self._found else self._slots
        if slots.statistics().tasks_waiting >= LOOKUPS_WAITING:
            raise KeysUnavailable("too many unknown keys are being looked up")
        async with slots:
            return await self._lookup(name)

    def _end(self, name: str, done: asyncio.Task[Record | None]) -> None:
        if self._in_flight.get(name) is done:
            del self._in_flight[name]
        if not done.cancelled():
            done.exception()  # its callers may have disconnected


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownKey:
    """A key, its tenant, and the caller that they make."""

    record: KeyRecord
    tenant: TenantRecord
    caller: Caller


class KnownKeys:
    """pepper: the key of the digests. report: gets whether the source answers, after each read.
    clock: monotonic. now: seconds since the epoch, for expiry and rotation.
    """

    def __init__(
        self,
        source: KeySource,
        pepper: bytes,
        *,
        report: Callable[[bool], None],
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._source = source
        self._pepper = pepper
        self._report = report
        self._clock = clock
        self._now = now
        self._generation: int | None = None
        self._answered_at = -math.inf
        self.answers = True
        self._keys = RecordCache(self._read_key, is_trusted=self.is_trusted, clock=clock)
        self._tenants = RecordCache(source.tenant, is_trusted=self.is_trusted, clock=clock)

    async def caller(self, key: bytes) -> Caller:
        """
        Raises:
            AuthenticationFailed: the key is unknown, wrong, expired or revoked.
            RequestError: the tenant is not active.
            KeysUnavailable: the key is not known, and the store cannot be reached.
        """
        key_id = api_key.id_of(key)
        known = None if key_id is None else await self._keys.find(key_id)
        digest = api_key.digest(key, self._pepper)
        if known is None or not _has(known.record, digest, self._now()):
            raise unaccepted()
        return self._accepted(known)

    async def of_id(self, key_id: str) -> Caller:
        """The caller whose key was accepted before. Raises as `caller` does."""
        if (known := await self._keys.find(key_id)) is None:
            raise unaccepted()
        return self._accepted(known)

    def _accepted(self, known: KnownKey) -> Caller:
        if known.record.revoked_at is not None:
            raise AuthenticationFailed("The API key was revoked: use another one.")
        if _is_over(known.record.expires_at, self._now()):
            raise AuthenticationFailed(
                "The API key has expired: ask the operator of this server for a new one.",
                code=ErrorCode.EXPIRED_API_KEY,
            )
        if not known.tenant.is_active:
            raise inactive(known.tenant.name)
        return known.caller

    async def of_tenant(self, caller: Caller) -> Caller:
        """The caller, who has no key of ours, with what the store has of its tenant.

        Raises:
            RequestError: there is no such tenant, or it is not active.
            KeysUnavailable: the tenant is not known, and the store cannot be reached.
        """
        found = await self._tenants.find(caller.tenant)
        if found is None or not found.is_active:
            raise inactive(caller.tenant)
        return _of_tenant(caller, found)

    def is_trusted(self) -> bool:
        """Whether what is known may be used: the source has answered within OUTAGE_S."""
        return self._clock() - self._answered_at <= OUTAGE_S

    async def run(self) -> None:
        """Forgets what is known when the source's generation has grown."""
        while True:
            await self.check()
            await asyncio.sleep(POLL_S)

    async def check(self) -> None:
        """Reads the generation once."""
        began = self._clock()
        try:
            generation = await asyncio.wait_for(self._source.generation(), READ_TIMEOUT_S)
        except Exception as error:  # any failure ends the trust in what is known, after OUTAGE_S
            if self.answers:
                logger.error(
                    "keys cannot be read",
                    detail=repr(error),
                    known_keys_work_s=OUTAGE_S,
                    advice="look at the database that STORE_URL names, before the known keys end",
                )
            self.answers = False
        else:
            if generation != self._generation or not self.is_trusted():
                self._generation = generation
                self._keys.drop()
                self._tenants.drop()
            self._answered_at = began
            if not self.answers:
                logger.info("keys can be read again")
            self.answers = True
        self._report(self.answers)

    async def _read_key(self, key_id: str) -> KnownKey | None:
        record = await self._source.key(key_id)
        tenant = None if record is None else await self._source.tenant(record.tenant)
        if record is None or tenant is None:
            return None
        caller = Caller(
            tenant=record.tenant,
            key_id=record.id,
            scopes=record.scopes,
            models=record.models,
            key_limits=record.limits,
            max_priority=record.max_priority,
        )
        return KnownKey(record=record, tenant=tenant, caller=_of_tenant(caller, tenant))


def _of_tenant(caller: Caller, tenant: TenantRecord) -> Caller:
    return replace(
        caller,
        tenant_limits=tenant.limits,
        of_models=tenant.of_models,
        weight=tenant.weight,
        records=tenant.records,
        tenant_since=int(tenant.created_at.timestamp() * 1000),
        max_priority=lowest_ceiling(caller.max_priority, tenant.max_priority),
    )


def _has(record: KeyRecord, digest: bytes, now: float) -> bool:
    """Whether it is the digest of this key, or of the key before its rotation, at `now`."""
    until = record.overlap_until
    is_own = compare_digest(digest, record.digest)
    is_former = compare_digest(digest, record.overlap_digest or b"")
    return is_own or (is_former and until is not None and now < until.timestamp())


def _is_over(end: datetime | None, now: float) -> bool:
    return end is not None and now >= end.timestamp()


def unaccepted() -> AuthenticationFailed:
    return AuthenticationFailed(
        "The API key is not accepted: check that it is complete and that it is for this server."
    )


def inactive(tenant: str) -> RequestError:
    return RequestError(
        f"The tenant {echoed(tenant)} is not active on this server: its operator can change that.",
        code=ErrorCode.TENANT_NOT_ACTIVE,
    )
