"""The first admin key of an empty store. Called by the launcher, at each start."""

from __future__ import annotations

from sqlalchemy import insert, select

from proxy.access.store.change_log import ChangeLog
from proxy.access.store.database import Database
from proxy.access.store.issued_key import IssuedKey, KeyOrder, issued
from proxy.access.store.record_rows import (
    key_row,
    key_view,
    tenant_row,
    tenant_view,
)
from proxy.access.store.tables import KEYS, META, TENANTS
from proxy.domain.identity import NO_LIMITS, Scope
from proxy.domain.key_records import TenantRecord

ACTOR = "first start"
TENANT = "administration"
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
