"""Tenants and keys in their tables: what administrators do with them, and what the authentication
reads.

A record's fields have the names of its table's columns.
"""

from __future__ import annotations

import secrets
import string
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from datetime import timedelta
from typing import Any, Generic, TypeVar

from sqlalchemy import Column, Table, delete, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from proxy.access.authentication import api_key
from proxy.access.store.audit_log import AuditLog, Change
from proxy.access.store.database import Database, storable
from proxy.access.store.tables import KEYS, META, TENANTS, as_json
from proxy.domain.errors import Conflict, ErrorCode, RequestError, counted, echoed
from proxy.domain.identity import Scope
from proxy.domain.key_records import KEY_FIELDS, TENANT_FIELDS, KeyRecord, TenantRecord

FIRST_ACTOR, FIRST_TENANT = "first start", "administration"
ID_CHARACTERS = 12  # 62 random bits
ID_ALPHABET = string.ascii_lowercase + string.digits

Record = TypeVar("Record", KeyRecord, TenantRecord)


def view(record: KeyRecord | TenantRecord) -> dict[str, Any]:
    """The record without its digests, for answers and the audit log. Values are JSON's."""
    fields = KEY_FIELDS if isinstance(record, KeyRecord) else TENANT_FIELDS
    names = (one.name for one in fields if one.shown.answer is not None)
    return {name: as_json(getattr(record, name)) for name in names}


def _row(record: KeyRecord | TenantRecord) -> dict[str, Any]:
    return {field.name: getattr(record, field.name) for field in fields(record)}


class _Records(Generic[Record]):
    """actor: the administrator, for the audit log. Every method may raise StoreUnavailable."""

    _kind: type[Record]
    _table: Table
    _column: Column[Any]  # by which they are found

    def __init__(self, database: Database, audit: AuditLog) -> None:
        self._database = database
        self._audit = audit

    async def find(self, name: str) -> Record | None:
        """The key of this id, or the tenant of this name, which may be any text."""
        async with self._database.reading() as connection:
            return await self._found(connection, name)

    async def show(self, name: str) -> Record:
        """Raises RequestError."""
        async with self._database.reading() as connection:
            return await self.existing(connection, name)

    async def list(
        self, *, tenant: str | None = None, after: str = "", limit: int | None = 1000
    ) -> Sequence[Record]:
        """At most `limit` (None: all) by name or id, from the one that follows `after` on.

        tenant: only keys of this one.
        """
        chosen = select(self._table).where(self._column > after)
        if tenant is not None:
            chosen = chosen.where(self._table.c.tenant == tenant)
        async with self._database.reading() as connection:
            found = await connection.execute(chosen.order_by(self._column).limit(limit))
            return [self._kind(**row) for row in found.mappings()]

    async def update(self, actor: str, name: str, changed: Callable[[Record], Record]) -> Record:
        """changed: the record as stored -> as it shall be.

        Raises:
            RequestError: there is no such record.
            Conflict: it is a key that is revoked.
        """
        async with self._audit.change(actor) as change:
            before = await self._changeable(change.connection, name)
            after = changed(before)
            await self._save(change, "update", before, after)
        return after

    async def existing(self, connection: AsyncConnection, name: str) -> Record:
        """Raises RequestError."""
        record = await self._found(connection, name)
        if record is None:
            raise self._missing(name)
        return record

    async def _changeable(self, connection: AsyncConnection, name: str) -> Record:
        return await self.existing(connection, name)

    def _missing(self, name: str) -> RequestError:
        raise NotImplementedError

    async def _found(self, connection: AsyncConnection, name: str) -> Record | None:
        if not storable(name):
            return None
        found = await connection.execute(select(self._table).where(self._column == name))
        row = found.mappings().one_or_none()
        return None if row is None else self._kind(**row)

    async def add(self, change: Change, record: Record) -> None:
        """Stores a new record, with its audit entry."""
        await change.connection.execute(insert(self._table).values(_row(record)))
        change.record(f"{self._table.name}.create", self._object(record), after=view(record))

    async def _save(
        self, change: Change, verb: str, before: Record, after: Record, **details: object
    ) -> None:
        """Stores the changed record, with its audit entry. details: more of the view after it."""
        row = _row(after)
        here = self._column == row[self._column.name]
        await change.connection.execute(update(self._table).where(here).values(row))
        views = {"before": view(before), "after": {**view(after), **details}}
        change.record(f"{self._table.name}.{verb}", self._object(before), **views)

    def _object(self, record: Record) -> str:
        return f"{self._table.name}/{getattr(record, self._column.name)}"


class Tenants(_Records[TenantRecord]):
    _kind, _table, _column = TenantRecord, TENANTS, TENANTS.c.name

    async def create(self, actor: str, name: str, **fields: Any) -> TenantRecord:
        """fields: others of the record. Raises Conflict: there is a tenant of this name."""
        async with self._audit.change(actor) as change:
            if await self._found(change.connection, name) is not None:
                raise Conflict(
                    f"The tenant {echoed(name)} exists already.",
                    code=ErrorCode.TENANT_EXISTS,
                    param="name",
                )
            tenant = TenantRecord(name=name, created_at=change.at, **fields)
            await self.add(change, tenant)
        return tenant

    async def delete(self, actor: str, name: str) -> TenantRecord:
        """Deletes a tenant and its revoked keys; its usage is kept.

        Raises:
            RequestError: there is no tenant of this name.
            Conflict: it has keys that are not revoked.
        """
        async with self._audit.change(actor) as change:
            tenant = await self.existing(change.connection, name)
            of_tenant = KEYS.c.tenant == name
            valid = select(KEYS.c.id).where(of_tenant, KEYS.c.revoked_at.is_(None))
            keys = (await change.connection.execute(valid.order_by(KEYS.c.id))).scalars().all()
            if keys:
                raise Conflict(
                    f"The tenant {echoed(name)} has {counted(len(keys), 'key')} not revoked, such "
                    f"as {keys[0]}: revoke all of them first.",
                    code=ErrorCode.TENANT_HAS_KEYS,
                    param="name",
                )
            await change.connection.execute(delete(KEYS).where(of_tenant))
            await change.connection.execute(delete(TENANTS).where(TENANTS.c.name == name))
            change.record("tenants.delete", self._object(tenant), before=view(tenant))
        return tenant

    def _missing(self, name: str) -> RequestError:
        return RequestError(
            f"There is no tenant {echoed(name)}.", code=ErrorCode.TENANT_NOT_FOUND, param="tenant"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class IssuedKey:
    """key: `sk-<id>-<secret>`, which is shown once; only its digest is stored."""

    key: str
    record: KeyRecord

    @property
    def view(self) -> dict[str, Any]:
        return {**view(self.record), "key": self.key}


class Keys(_Records[KeyRecord]):
    """Also implements domain.key_records.KeySource."""

    _kind, _table, _column = KeyRecord, KEYS, KEYS.c.id

    def __init__(
        self, database: Database, audit: AuditLog, tenants: Tenants, pepper: bytes
    ) -> None:
        super().__init__(database, audit)
        self._tenants = tenants
        self._pepper = pepper
        self.key, self.tenant = self.find, tenants.find

    async def generation(self) -> int:
        async with self._database.reading() as connection:
            return int((await connection.execute(select(META.c.generation))).scalar_one())

    async def create(self, actor: str, tenant: str, **fields: Any) -> IssuedKey:
        """fields: others of the record. Raises RequestError: there is no such tenant."""
        async with self._audit.change(actor) as change:
            await self._tenants.existing(change.connection, tenant)
            return await self._issue(change, tenant=tenant, **fields)

    async def create_first(self, keep: Callable[[IssuedKey], None]) -> IssuedKey | None:
        """An admin key and its tenant, if nothing was ever changed in this store; else None.

        Of several processes that start at once, one gets the key. If `keep` raises, none is made.
        """
        async with self._database.reading() as connection:
            if (await connection.execute(select(META.c.audit_entries))).scalar_one():
                return None
        async with self._audit.change(FIRST_ACTOR) as change:
            if not change.is_first:  # another process was faster
                return None
            tenant = TenantRecord(name=FIRST_TENANT, created_at=change.at)
            await self._tenants.add(change, tenant)
            scopes = frozenset({Scope.ADMIN})
            issued = await self._issue(
                change, tenant=FIRST_TENANT, name="first admin key", scopes=scopes
            )
            keep(issued)
            return issued

    async def rotate(self, actor: str, key_id: str, overlap: timedelta) -> IssuedKey:
        """A new secret under the same id. The old key is accepted until the overlap is over.

        The secret before an earlier rotation ends at once, whatever its overlap.

        Raises:
            RequestError: there is no such key.
            Conflict: it is revoked.
        """
        async with self._audit.change(actor) as change:
            before, key = await self._changeable(change.connection, key_id), api_key.made(key_id)
            rotated = replace(
                before,
                digest=api_key.digest(key.encode(), self._pepper),
                overlap_digest=before.digest if overlap else None,
                overlap_until=change.at + overlap if overlap else None,
            )
            # without an overlap both views may be equal, and the key has changed all the same
            at = change.at.isoformat()
            await self._save(change, "rotate", before, rotated, rotated_at=at)
        return IssuedKey(key=key, record=rotated)

    async def revoke(self, actor: str, key_id: str) -> KeyRecord:
        """Ends a key for good, at once; one that is revoked already stays so.

        Raises RequestError: there is no such key.
        """
        async with self._audit.change(actor) as change:
            before = await self.existing(change.connection, key_id)
            ended = before.revoked_at or change.at
            revoked = replace(before, revoked_at=ended, overlap_digest=None, overlap_until=None)
            await self._save(change, "revoke", before, revoked)
        return revoked

    async def _issue(self, change: Change, **fields: Any) -> IssuedKey:
        key_id = "".join(secrets.choice(ID_ALPHABET) for _ in range(ID_CHARACTERS))
        key = api_key.made(key_id)
        record = KeyRecord(
            id=key_id,
            digest=api_key.digest(key.encode(), self._pepper),
            created_at=change.at,
            **fields,
        )
        await self.add(change, record)
        return IssuedKey(key=key, record=record)

    async def _changeable(self, connection: AsyncConnection, name: str) -> KeyRecord:
        key = await self.existing(connection, name)
        if key.revoked_at is not None:
            raise Conflict(
                f"The key {name} was revoked at {key.revoked_at:%Y-%m-%d %H:%M} UTC, for good: "
                "create another one.",
                code=ErrorCode.KEY_REVOKED,
                param="key",
            )
        return key

    def _missing(self, name: str) -> RequestError:
        return RequestError(
            f"There is no key with the id {echoed(name)}.",
            code=ErrorCode.KEY_NOT_FOUND,
            param="key",
        )
