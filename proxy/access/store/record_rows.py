"""Keys and tenants as rows of their tables, and as administrators see them.

A record's fields have the names of its table's columns.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any, TypeVar

from sqlalchemy import Table, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from proxy.access.store.change_log import Change
from proxy.access.store.database import storable
from proxy.access.store.tables import KEYS, TENANTS, as_json
from proxy.domain.key_records import KeyRecord, TenantRecord

Record = TypeVar("Record", KeyRecord, TenantRecord)

NEVER_SHOWN = frozenset({"digest", "overlap_digest"})


async def find(connection: AsyncConnection, kind: type[Record], name: str) -> Record | None:
    """The key of this id, or the tenant of this name, which may be any text."""
    if not storable(name):
        return None
    table = _table(kind)
    (column,) = table.primary_key
    found = (await connection.execute(select(table).where(column == name))).mappings()
    row = found.one_or_none()
    return None if row is None else kind(**row)


async def add(change: Change, record: KeyRecord | TenantRecord) -> None:
    """Stores a new record, with its audit entry."""
    table = _table(type(record))
    await change.connection.execute(insert(table).values(_row(record)))
    change.record(f"{table.name}.create", _object(record), after=view(record))


async def replace(
    change: Change, verb: str, before: Record, after: Record, **details: object
) -> None:
    """Stores the changed record, with its audit entry. details: more of the view after it."""
    table, row = _table(type(before)), _row(after)
    (column,) = table.primary_key
    await change.connection.execute(update(table).where(column == row[column.name]).values(row))
    views = {"before": view(before), "after": {**view(after), **details}}
    change.record(f"{table.name}.{verb}", _object(before), **views)


def view(record: KeyRecord | TenantRecord) -> dict[str, Any]:
    """The record without its digests, for answers and the audit log. Values are JSON's."""
    row = _row(record)
    return {name: as_json(value) for name, value in row.items() if name not in NEVER_SHOWN}


def _row(record: KeyRecord | TenantRecord) -> dict[str, Any]:
    return {field.name: getattr(record, field.name) for field in fields(record)}


def _table(kind: type[KeyRecord | TenantRecord]) -> Table:
    return KEYS if kind is KeyRecord else TENANTS


def _object(record: KeyRecord | TenantRecord) -> str:
    return f"keys/{record.id}" if isinstance(record, KeyRecord) else f"tenants/{record.name}"
