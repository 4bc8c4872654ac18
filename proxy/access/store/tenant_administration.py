"""Creates, lists, updates and deletes tenants. Used by `administration`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from sqlalchemy import delete, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from proxy.access.store.change_log import ChangeLog
from proxy.access.store.database import Database, storable
from proxy.access.store.record_rows import tenant_of, tenant_row, tenant_view
from proxy.access.store.tables import KEYS, TENANTS
from proxy.domain.errors import Conflict, ErrorCode, NotStored, echoed
from proxy.domain.identity import NO_LIMITS, Limits
from proxy.domain.key_records import TenantRecord

Update = Callable[[TenantRecord], TenantRecord]


class TenantAdministration:
    """`actor`: who asks, for the audit log. Every method may raise StoreUnavailable."""

    def __init__(self, database: Database, changes: ChangeLog) -> None:
        self._database = database
        self._changes = changes

    async def create(
        self,
        actor: str,
        name: str,
        *,
        limits: Limits = NO_LIMITS,
        of_models: Mapping[str, Limits] | None = None,
        weight: float = 1.0,
        max_priority: int | None = None,
        records: bool = False,
    ) -> TenantRecord:
        """Raises Conflict: there is a tenant of this name."""
        async with self._changes.change(actor) as change:
            if await _found(change.connection, name) is not None:
                raise Conflict(
                    f"The tenant {echoed(name)} exists already.",
                    code=ErrorCode.TENANT_EXISTS,
                    param="name",
                )
            tenant = TenantRecord(
                name=name,
                limits=limits,
                of_models=dict(of_models or {}),
                weight=weight,
                max_priority=max_priority,
                records=records,
                is_active=True,
                created_at=change.at,
            )
            await change.connection.execute(insert(TENANTS).values(tenant_row(tenant)))
            change.record("tenants.create", f"tenants/{name}", after=tenant_view(tenant))
        return tenant

    async def list(self, *, after: str = "", limit: int | None = 1000) -> Sequence[TenantRecord]:
        """At most `limit` (None: all) tenants by name, from the one that follows `after` on."""
        chosen = select(TENANTS).where(TENANTS.c.name > after)
        async with self._database.reading() as connection:
            rows = await connection.execute(chosen.order_by(TENANTS.c.name).limit(limit))
            return [tenant_of(row) for row in rows]

    async def show(self, name: str) -> TenantRecord:
        """Raises NotStored."""
        async with self._database.reading() as connection:
            return await existing_tenant(connection, name)

    async def update(self, actor: str, name: str, changed: Update) -> TenantRecord:
        """changed: the tenant as stored -> as it shall be. Raises NotStored."""
        async with self._changes.change(actor) as change:
            before = await existing_tenant(change.connection, name)
            tenant = changed(before)
            chosen = update(TENANTS).where(TENANTS.c.name == name)
            await change.connection.execute(chosen.values(tenant_row(tenant)))
            views = {"before": tenant_view(before), "after": tenant_view(tenant)}
            change.record("tenants.update", f"tenants/{name}", **views)
        return tenant

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
            change.record("tenants.delete", f"tenants/{name}", before=tenant_view(tenant))
        return tenant


async def existing_tenant(connection: AsyncConnection, name: str) -> TenantRecord:
    """Raises NotStored."""
    tenant = await _found(connection, name)
    if tenant is None:
        raise NotStored(
            f"There is no tenant {echoed(name)}.", code=ErrorCode.TENANT_NOT_FOUND, param="tenant"
        )
    return tenant


async def _found(connection: AsyncConnection, name: str) -> TenantRecord | None:
    if not storable(name):
        return None
    found = await connection.execute(select(TENANTS).where(TENANTS.c.name == name))
    row = found.one_or_none()
    return None if row is None else tenant_of(row)
