"""Creates, lists, updates, rotates and revokes API keys. Used by `administration`."""

from __future__ import annotations

import secrets
import string
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from proxy.access.authentication import api_key
from proxy.access.store import record_rows
from proxy.access.store.change_log import ChangeLog
from proxy.access.store.database import Database
from proxy.access.store.tables import KEYS, META
from proxy.access.store.tenant_administration import existing_tenant
from proxy.domain.errors import Conflict, ErrorCode, NotStored, echoed
from proxy.domain.identity import NO_LIMITS, Limits, ModelPatterns, Scope
from proxy.domain.key_records import KeyRecord, TenantRecord

ACTOR = "first start"
TENANT = "administration"
EVERY_MODEL = ModelPatterns()
ID_CHARACTERS = 12  # 62 random bits
ID_ALPHABET = string.ascii_lowercase + string.digits

Update = Callable[[KeyRecord], KeyRecord]


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyOrder:
    """What a new key shall be. expires_at: None for never."""

    tenant: str
    name: str
    scopes: frozenset[Scope]
    models: ModelPatterns = EVERY_MODEL
    limits: Limits = NO_LIMITS
    max_priority: int | None = None
    expires_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class IssuedKey:
    """key: `sk-<id>-<secret>`, which is shown once; only its digest is stored."""

    key: str
    record: KeyRecord

    @property
    def view(self) -> dict[str, Any]:
        return {**record_rows.view(self.record), "key": self.key}


class KeyAdministration:
    """`actor`: who asks, for the audit log. Every method may raise StoreUnavailable."""

    def __init__(self, database: Database, changes: ChangeLog, pepper: bytes) -> None:
        self._database = database
        self._changes = changes
        self._pepper = pepper

    async def create(self, actor: str, order: KeyOrder) -> IssuedKey:
        """Raises NotStored: there is no such tenant."""
        async with self._changes.change(actor) as change:
            await existing_tenant(change.connection, order.tenant)
            made = self._issued(order, change.at)
            await record_rows.add(change, made.record)
        return made

    async def create_first(self) -> IssuedKey | None:
        """An admin key and its tenant, if nothing was ever changed in this store; else None.

        Of several processes that start at once, one gets the key.
        """
        async with self._database.reading() as connection:
            if (await connection.execute(select(META.c.audit_entries))).scalar_one():
                return None
        order = KeyOrder(tenant=TENANT, name="first admin key", scopes=frozenset({Scope.ADMIN}))
        async with self._changes.change(ACTOR) as change:
            if not change.is_first:  # another process was faster
                return None
            made = self._issued(order, change.at)
            await record_rows.add(change, TenantRecord(name=TENANT, created_at=change.at))
            await record_rows.add(change, made.record)
        return made

    async def list(
        self, *, tenant: str | None = None, after: str = "", limit: int | None = 1000
    ) -> Sequence[KeyRecord]:
        """At most `limit` (None: all) keys by id, from the one that follows `after` on."""
        chosen = select(KEYS).where(KEYS.c.id > after)
        if tenant is not None:
            chosen = chosen.where(KEYS.c.tenant == tenant)
        async with self._database.reading() as connection:
            found = await connection.execute(chosen.order_by(KEYS.c.id).limit(limit))
            return [KeyRecord(**row) for row in found.mappings()]

    async def show(self, key_id: str) -> KeyRecord:
        """Raises NotStored."""
        async with self._database.reading() as connection:
            return await _existing(connection, key_id)

    async def update(self, actor: str, key_id: str, changed: Update) -> KeyRecord:
        """changed: the key as stored -> as it shall be.

        Raises:
            NotStored: there is no such key.
            Conflict: it is revoked.
        """
        async with self._changes.change(actor) as change:
            before = await _unrevoked(change.connection, key_id)
            after = changed(before)
            await record_rows.replace(change, "update", before, after)
        return after

    async def rotate(self, actor: str, key_id: str, overlap: timedelta) -> IssuedKey:
        """A new secret under the same id. The old key is accepted until the overlap is over.

        The secret before an earlier rotation ends at once, whatever its overlap.

        Raises:
            NotStored: there is no such key.
            Conflict: it is revoked.
        """
        async with self._changes.change(actor) as change:
            before, key = await _unrevoked(change.connection, key_id), api_key.made(key_id)
            rotated = replace(
                before,
                digest=api_key.digest(key.encode(), self._pepper),
                overlap_digest=before.digest if overlap else None,
                overlap_until=change.at + overlap if overlap else None,
            )
            # without an overlap both views may be equal, and the key has changed all the same
            at = change.at.isoformat()
            await record_rows.replace(change, "rotate", before, rotated, rotated_at=at)
        return IssuedKey(key=key, record=rotated)

    async def revoke(self, actor: str, key_id: str) -> KeyRecord:
        """Ends a key for good, at once; one that is revoked already stays so. Raises NotStored."""
        async with self._changes.change(actor) as change:
            before = await _existing(change.connection, key_id)
            ended = before.revoked_at or change.at
            revoked = replace(before, revoked_at=ended, overlap_digest=None, overlap_until=None)
            await record_rows.replace(change, "revoke", before, revoked)
        return revoked

    def _issued(self, order: KeyOrder, at: datetime) -> IssuedKey:
        key_id = "".join(secrets.choice(ID_ALPHABET) for _ in range(ID_CHARACTERS))
        key = api_key.made(key_id)
        record = KeyRecord(
            id=key_id,
            tenant=order.tenant,
            name=order.name,
            digest=api_key.digest(key.encode(), self._pepper),
            scopes=order.scopes,
            models=order.models,
            limits=order.limits,
            max_priority=order.max_priority,
            created_at=at,
            expires_at=order.expires_at,
        )
        return IssuedKey(key=key, record=record)


async def _existing(connection: AsyncConnection, key_id: str) -> KeyRecord:
    key = await record_rows.find(connection, KeyRecord, key_id)
    if key is None:
        raise NotStored(
            f"There is no key with the id {echoed(key_id)}.",
            code=ErrorCode.KEY_NOT_FOUND,
            param="key",
        )
    return key


async def _unrevoked(connection: AsyncConnection, key_id: str) -> KeyRecord:
    key = await _existing(connection, key_id)
    if key.revoked_at is not None:
        raise Conflict(
            f"The key {key_id} was revoked at {key.revoked_at:%Y-%m-%d %H:%M} UTC, for good: "
            "create another one.",
            code=ErrorCode.KEY_REVOKED,
            param="key",
        )
    return key
