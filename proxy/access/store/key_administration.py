"""Creates, lists, updates, rotates and revokes API keys. Used by `administration`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

from sqlalchemy import insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from proxy.access.authentication import api_key
from proxy.access.store.change_log import ChangeLog
from proxy.access.store.database import Database, storable
from proxy.access.store.issued_key import IssuedKey, KeyOrder, issued, new_key
from proxy.access.store.record_rows import key_of, key_row, key_view, tenant_row, tenant_view
from proxy.access.store.tables import KEYS, META, TENANTS
from proxy.access.store.tenant_administration import existing_tenant
from proxy.domain.errors import Conflict, ErrorCode, NotStored, echoed
from proxy.domain.identity import NO_LIMITS, Scope
from proxy.domain.key_records import KeyRecord, TenantRecord

ACTOR = "first start"
TENANT = "administration"

Update = Callable[[KeyRecord], KeyRecord]


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
            made = issued(order, change.at, self._pepper)
            await change.connection.execute(insert(KEYS).values(key_row(made.record)))
            change.record("keys.create", _object(made.record), after=key_view(made.record))
        return made

    async def list(
        self, *, tenant: str | None = None, after: str = "", limit: int | None = 1000
    ) -> Sequence[KeyRecord]:
        """At most `limit` (None: all) keys by id, from the one that follows `after` on."""
        chosen = select(KEYS).where(KEYS.c.id > after)
        if tenant is not None:
            chosen = chosen.where(KEYS.c.tenant == tenant)
        async with self._database.reading() as connection:
            rows = await connection.execute(chosen.order_by(KEYS.c.id).limit(limit))
            return [key_of(row) for row in rows]

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
            await _replace(change.connection, after)
            change.record("keys.update", _object(before), **_views(before, after))
        return after

    async def rotate(self, actor: str, key_id: str, overlap: timedelta) -> IssuedKey:
        """A new secret under the same id. The old key is accepted until the overlap is over.

        The secret before an earlier rotation ends at once, whatever its overlap.

        Raises:
            NotStored: there is no such key.
            Conflict: it is revoked.
        """
        async with self._changes.change(actor) as change:
            before, key = await _unrevoked(change.connection, key_id), new_key(key_id)
            rotated = replace(
                before,
                digest=api_key.digest(key.encode(), self._pepper),
                overlap_digest=before.digest if overlap else None,
                overlap_until=change.at + overlap if overlap else None,
            )
            await _replace(change.connection, rotated)
            views = _views(before, rotated)
            # without an overlap both views may be equal, and the key has changed all the same
            views["after"] |= {"rotated_at": change.at.isoformat()}
            change.record("keys.rotate", _object(before), **views)
        return IssuedKey(key=key, record=rotated)

    async def revoke(self, actor: str, key_id: str) -> KeyRecord:
        """Ends a key for good, at once; one that is revoked already stays so. Raises NotStored."""
        async with self._changes.change(actor) as change:
            before = await _existing(change.connection, key_id)
            ended = before.revoked_at or change.at
            revoked = replace(before, revoked_at=ended, overlap_digest=None, overlap_until=None)
            await _replace(change.connection, revoked)
            change.record("keys.revoke", _object(before), **_views(before, revoked))
        return revoked


def _object(key: KeyRecord) -> str:
    return f"keys/{key.id}"


def _views(before: KeyRecord, after: KeyRecord) -> dict[str, dict[str, Any]]:
    return {"before": key_view(before), "after": key_view(after)}


async def _replace(connection: AsyncConnection, key: KeyRecord) -> None:
    await connection.execute(update(KEYS).where(KEYS.c.id == key.id).values(key_row(key)))


async def _existing(connection: AsyncConnection, key_id: str) -> KeyRecord:
    row = None
    if storable(key_id):
        row = (await connection.execute(select(KEYS).where(KEYS.c.id == key_id))).one_or_none()
    if row is None:
        raise NotStored(
            f"There is no key with the id {echoed(key_id)}.",
            code=ErrorCode.KEY_NOT_FOUND,
            param="key",
        )
    return key_of(row)


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


ORDER = KeyOrder(tenant=TENANT, name="first admin key", scopes=frozenset({Scope.ADMIN}))


async def create_first(database: Database, changes: ChangeLog, pepper: bytes) -> IssuedKey | None:
    """An admin key and its tenant, if nothing was ever changed in this store; else None.

    Of several processes that start at once, one gets the key. Raises StoreUnavailable.
    """
    async with database.reading() as connection:
        if (await connection.execute(select(META.c.audit_entries))).scalar_one():
            return None
    async with changes.change(ACTOR) as change:
        if not change.is_first:  # another process was faster
            return None
        tenant = TenantRecord(
            name=TENANT, limits=NO_LIMITS, of_models={}, is_active=True, created_at=change.at
        )
        made = issued(ORDER, change.at, pepper)
        await change.connection.execute(insert(TENANTS).values(tenant_row(tenant)))
        await change.connection.execute(insert(KEYS).values(key_row(made.record)))
        change.record("tenants.create", f"tenants/{TENANT}", after=tenant_view(tenant))
        change.record("keys.create", f"keys/{made.record.id}", after=key_view(made.record))
    return made
