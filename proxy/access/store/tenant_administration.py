"""Creates, lists, updates and deletes tenants. Used by `administration`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from sqlalchemy import delete, select
from sqlalchemy.ext.asyncio import AsyncConnection

from proxy.access.store import record_rows
from proxy.access.store.change_log import ChangeLog
from proxy.access.store.database import Database
from proxy.access.store.tables import KEYS, TENANTS
from proxy.domain.errors import Conflict, ErrorCode, NotStored, echoed
from proxy.domain.key_records import TenantRecord

Update = Callable[[TenantRecord], TenantRecord]


class TenantAdministration:
    """`actor`: who asks, for the audit log. Every method may raise StoreUnavailable."""

    def __init__(self, database: Database, changes: ChangeLog) -> None:
        self._database = database
        self._changes = changes

    async def create(self, actor: str, name: str, **fields: Any) -> TenantRecord:
        """fields: others of the record. Raises Conflict: there is a tenant of this name."""
        async with self._changes.change(actor) as change:
            if await record_rows.find(change.connection, TenantRecord, name) is not None:
                raise Conflict(
                    f"The tenant {echoed(name)} exists already.",
                    code=ErrorCode.TENANT_EXISTS,
                    param="name",
                )
            tenant = TenantRecord(name=name, created_at=change.at, **fields)
            await record_rows.add(change, tenant)
        return tenant

    async def list(self, *, after: str = "", limit: int | None = 1000) -> Sequence[TenantRecord]:
        """At most `limit` (None: all) tenants by name, from the one that follows `after` on."""
        chosen = select(TENANTS).where(TENANTS.c.name > after)
        async with self._database.reading() as connection:
            found = await connection.execute(chosen.order_by(TENANTS.c.name).limit(limit))
            return [TenantRecord(**row) for row in found.mappings()]

    async def show(self, name: str) -> TenantRecord:
        """Raises NotStored."""
        async with self._database.reading() as connection:
            return await existing_tenant(connection, name)

    async def update(self, actor: str, name: str, changed: Update) -> TenantRecord:
        """changed: the tenant as stored -> as it shall be. Raises NotStored."""
        async with self._changes.change(actor) as change:
            before = await existing_tenant(change.connection, name)
            after = changed(before)
            await record_rows.replace(change, "update", before, after)
        return after

    async def delete(self, actor: str, name: str) -> TenantRecord:
        """Deletes a tenant and its revoked keys; its usage is kept.

        Raises:
            NotStored: there is no tenant of this name.
            Conflict: it has keys that are not revoked.
        """
        async with self._changes.change(actor) as change:
            tenant = await existing_tenant(change.connection, name)
            of_tenant = KEYS.c.tenant == name
            valid = select(KEYS.c.id).where(of_tenant, KEYS.c.revoked_at.is_(None))
            keys = (await change.connection.execute(valid.order_by(KEYS.c.id))).scalars().all()
            if keys:
                raise Conflict(
                    f"The tenant {echoed(name)} has {len(keys)} keys that are not revoked, such as "
                    f"{keys[0]}: revoke them first.",
                    code=ErrorCode.TENANT_HAS_KEYS,
                    param="name",
                )
            await change.connection.execute(delete(KEYS).where(of_tenant))
            await change.connection.execute(delete(TENANTS).where(TENANTS.c.name == name))
            change.record("tenants.delete", f"tenants/{name}", before=record_rows.view(tenant))
        return tenant


async def existing_tenant(connection: AsyncConnection, name: str) -> TenantRecord:
    """Raises NotStored."""
    tenant = await record_rows.find(connection, TenantRecord, name)
    if tenant is None:
        raise NotStored(
            f"There is no tenant {echoed(name)}.", code=ErrorCode.TENANT_NOT_FOUND, param="tenant"
        )
    return tenant
