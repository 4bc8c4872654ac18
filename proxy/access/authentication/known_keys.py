"""API keys of the store -> callers, with what is known of them in memory."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from hmac import compare_digest

import structlog

from proxy.access.authentication import api_key
from proxy.access.authentication.record_cache import RecordCache
from proxy.domain.errors import AuthenticationFailed, ErrorCode, Forbidden, echoed
from proxy.domain.identity import Caller, lowest_ceiling
from proxy.domain.key_records import KeyRecord, KeySource, TenantRecord

POLL_S = 0.25
READ_TIMEOUT_S = 2.0

logger = structlog.get_logger(__name__)


class GenerationWatch:
    """Calls `changed` when the source's generation has grown.

    trust_s: how long what is known stays trusted after the source last answered. report: gets
    whether the source answers, after each read.
    """

    def __init__(
        self,
        source: KeySource,
        changed: Callable[[], None],
        *,
        clock: Callable[[], float],
        trust_s: float,
        report: Callable[[bool], None],
    ) -> None:
        self._source = source
        self._changed = changed
        self._clock = clock
        self._trust_s = trust_s
        self._report = report
        self._generation: int | None = None
        self._answered_at = -math.inf
        self.answers = True

    def is_trusted(self) -> bool:
        """Whether what is known may be used: the source has answered within trust_s."""
        return self._clock() - self._answered_at <= self._trust_s

    async def run(self) -> None:
        while True:
            await self.check()
            await asyncio.sleep(POLL_S)

    async def check(self) -> None:
        """Reads the generation once."""
        began = self._clock()
        try:
            generation = await asyncio.wait_for(self._source.generation(), READ_TIMEOUT_S)
        except Exception as error:  # any failure ends the trust in what is known, after trust_s
            self._note(answers=False, why=repr(error))
            return
        if generation != self._generation or not self.is_trusted():
            self._generation = generation
            self._changed()
        self._answered_at = began
        self._note(answers=True)

    def _note(self, *, answers: bool, why: str = "") -> None:
        if answers != self.answers:
            if answers:
                logger.info("keys can be read again")
            else:
                logger.error(
                    "keys cannot be read",
                    detail=why,
                    known_keys_work_s=self._trust_s,
                    advice="look at the database that STORE_URL names, before the known keys end",
                )
        self.answers = answers
        self._report(answers)


OUTAGE_S = 60.0  # for which known keys keep working while the store cannot be reached


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownKey:
    """A key, its tenant, and the caller that they make."""

    record: KeyRecord
    tenant: TenantRecord
    caller: Caller

    def has(self, digest: bytes, now: float) -> bool:
        """Whether it is the digest of this key, or of the key before its rotation, at `now`."""
        record, until = self.record, self.record.overlap_until
        is_own = compare_digest(digest, record.digest)
        is_former = compare_digest(digest, record.overlap_digest or b"")
        return is_own or (is_former and until is not None and now < until.timestamp())


class KnownKeys:
    """pepper: the key of the digests. now: seconds since the epoch, for expiry and rotation."""

    def __init__(
        self,
        source: KeySource,
        pepper: bytes,
        *,
        trust_s: float = OUTAGE_S,
        report: Callable[[bool], None],
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._source = source
        self._pepper = pepper
        self._now = now
        self.watch = GenerationWatch(
            source, self._drop, clock=clock, trust_s=trust_s, report=report
        )
        trusted = self.watch.is_trusted
        self._keys = RecordCache(self._read_key, is_trusted=trusted, clock=clock)
        self._tenants = RecordCache(source.tenant, is_trusted=trusted, clock=clock)

    async def caller(self, key: bytes) -> Caller:
        """
        Raises:
            AuthenticationFailed: the key is unknown, wrong, expired or revoked.
            Forbidden: the tenant is not active.
            KeysUnavailable: the key is not known, and the store cannot be reached.
        """
        key_id = api_key.id_of(key)
        if key_id is None:
            raise unaccepted()
        known, now = await self._keys.find(key_id), self._now()
        if known is None or not known.has(api_key.digest(key, self._pepper), now):
            raise unaccepted()
        _check(known, now)
        return known.caller

    async def tenant(self, name: str) -> TenantRecord:
        """The record of an active tenant.

        Raises:
            Forbidden: there is no such tenant, or it is not active.
            KeysUnavailable: the tenant is not known, and the store cannot be reached.
        """
        found = await self._tenants.find(name)
        if found is None or not found.is_active:
            raise _inactive(name)
        return found

    def _drop(self) -> None:
        self._keys.drop()
        self._tenants.drop()

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
        return KnownKey(record=record, tenant=tenant, caller=of_tenant(caller, tenant))


def of_tenant(caller: Caller, tenant: TenantRecord) -> Caller:
    """The caller with what a store has of its tenant."""
    return replace(
        caller,
        tenant_limits=tenant.limits,
        of_models=tenant.of_models,
        weight=tenant.weight,
        records=tenant.records,
        max_priority=lowest_ceiling(caller.max_priority, tenant.max_priority),
    )


def _is_over(end: datetime | None, now: float) -> bool:
    return end is not None and now >= end.timestamp()


def _check(known: KnownKey, now: float) -> None:
    if known.record.revoked_at is not None:
        raise AuthenticationFailed("The API key was revoked: use another one.")
    if _is_over(known.record.expires_at, now):
        raise AuthenticationFailed(
            "The API key has expired: ask the operator of this server for a new one.",
            code=ErrorCode.EXPIRED_API_KEY,
        )
    if not known.tenant.is_active:
        raise _inactive(known.tenant.name)


def unaccepted() -> AuthenticationFailed:
    return AuthenticationFailed(
        "The API key is not accepted: check that it is complete and that it is for this server."
    )


def _inactive(tenant: str) -> Forbidden:
    return Forbidden(
        f"The tenant {echoed(tenant)} is not active on this server: its operator can change that.",
        code=ErrorCode.TENANT_NOT_ACTIVE,
        param=None,
    )
