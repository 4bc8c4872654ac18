"""Reads keys and tenants for the authentication. Implements KeySource."""

from __future__ import annotations

from sqlalchemy import select

from proxy.access.store.database import Database
from proxy.access.store.record_rows import key_of, tenant_of
from proxy.access.store.stored_text import storable
from proxy.access.store.tables import KEYS, META, TENANTS
from proxy.domain.key_records import KeyRecord, TenantRecord


class StoredKeys:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def generation(self) -> int:
        async with self._database.reading() as connection:
            return int((await connection.execute(select(META.c.generation))).scalar_one())

    async def key(self, key_id: str) -> KeyRecord | None:
        if not storable(key_id):
            return None
        async with self._database.reading() as connection:
            found = await connection.execute(select(KEYS).where(KEYS.c.id == key_id))
            row = found.one_or_none()
        return None if row is None else key_of(row)

    async def tenant(self, name: str) -> TenantRecord | None:
        """The name may come from a token, and be any text."""
        if not storable(name):
            return None
        async with self._database.reading() as connection:
            found = await connection.execute(select(TENANTS).where(TENANTS.c.name == name))
            row = found.one_or_none()
        return None if row is None else tenant_of(row)
