"""Changes of keys, tenants and operators' decisions, and the audit log that they leave.

Each is one transaction with its audit entry and a new generation.
The transaction first locks the row of `meta`, so that changes of all processes come one after the
other, and the chain has no forks.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import Any

import orjson
from sqlalchemy import insert, select, update
from sqlalchemy.engine import Row
from sqlalchemy.ext.asyncio import AsyncConnection

from proxy.access.store.audit_chain import AuditEntry, AuditHead, Verification, Verifier
from proxy.access.store.database import Database
from proxy.access.store.pepper import ChainKey
from proxy.access.store.tables import AUDIT, META

ROWS_AT_ONCE = 500  # of which the event loop computes the MACs in one go, about 5 ms

View = Mapping[str, Any]


@dataclass(slots=True)
class Change:
    """One change in the making. is_first: nothing was ever changed in this store."""

    connection: AsyncConnection
    at: datetime
    is_first: bool
    recorded: list[tuple[str, str, View | None, View | None]] = field(default_factory=list)

    def record(
        self, action: str, object: str, *, before: View | None = None, after: View | None = None
    ) -> None:
        """Adds an audit entry. before, after: the object as an administrator sees it; None: none.

        object: such as `tenants/<name>` or `keys/<id>`. Equal views are no change, and are not
        recorded.
        """
        if before != after:
            self.recorded.append((action, object, before, after))


@dataclass(frozen=True, slots=True, kw_only=True)
class Denial:
    """Calls that were denied to one caller for one reason. times: since the last entry."""

    actor: str
    object: str
    code: str
    times: int


class ChangeLog:
    def __init__(self, database: Database, key: ChainKey) -> None:
        self._database = database
        self._key = key

    @asynccontextmanager
    async def change(self, actor: str) -> AsyncIterator[Change]:
        """The body changes and records; entries and generation are written at its end.

        If the body raises, nothing is written.
        """
        async with self._database.writing() as connection:
            meta = await _locked(connection)
            change = Change(connection, _now(), is_first=meta.audit_entries == 0)
            yield change
            if not change.recorded:
                return
            head = _head(meta)
            for action, object, before, after in change.recorded:
                entry = self._entry(change.at, actor, action, object)
                entry = replace(entry, before=_json(before), after=_json(after))
                head = await self._append(connection, head, entry)
            await connection.execute(
                update(META).values(generation=META.c.generation + 1, **_columns(head))
            )

    async def denied(self, denials: list[Denial]) -> None:
        """Records denied calls, which change no key: the generation stays."""
        async with self._database.writing() as connection:
            head = _head(await _locked(connection))
            for denial in denials:
                entry = self._entry(_now(), denial.actor, "denied", denial.object)
                entry = replace(entry, after=_json({"code": denial.code, "times": denial.times}))
                head = await self._append(connection, head, entry)
            await connection.execute(update(META).values(**_columns(head)))

    async def note(self, action: str, object: str, *, actor: str, details: View) -> None:
        """Records what changes nothing here: the generation stays. See domain.audit_trail."""
        async with self._database.writing() as connection:
            head = _head(await _locked(connection))
            entry = self._entry(_now(), actor, action, object)
            head = await self._append(connection, head, replace(entry, after=_json(details)))
            await connection.execute(update(META).values(**_columns(head)))

    def _entry(self, at: datetime, actor: str, action: str, object: str) -> AuditEntry:
        return AuditEntry(
            number=0,
            at=at,
            actor=actor,
            action=action,
            object=object,
            before=None,
            after=None,
            chain_key=self._key.id,
        )

    async def _append(
        self, connection: AsyncConnection, head: AuditHead, entry: AuditEntry
    ) -> AuditHead:
        entry = replace(entry, number=head.entries + 1)
        entry = replace(entry, mac=entry.chained(self._key, head.mac))
        row = {column.name: getattr(entry, column.name) for column in AUDIT.columns}
        await connection.execute(insert(AUDIT).values(row))
        return AuditHead.sealed(entry.number, entry.mac, self._key)


async def _locked(connection: AsyncConnection) -> Row[Any]:
    """The row of `meta`; no other change gets it before this transaction ends."""
    return (await connection.execute(select(META).with_for_update())).one()


async def read_head(connection: AsyncConnection) -> AuditHead:
    return _head((await connection.execute(select(META))).one())


def _head(meta: Row[Any]) -> AuditHead:
    return AuditHead(
        entries=meta.audit_entries,
        chain_key=meta.audit_chain_key,
        mac=meta.audit_mac,
        seal=meta.audit_head,
    )


def _columns(head: AuditHead) -> dict[str, Any]:
    return {
        "audit_entries": head.entries,
        "audit_chain_key": head.chain_key,
        "audit_mac": head.mac,
        "audit_head": head.seal,
    }


def _json(view: View | None) -> str | None:
    return None if view is None else orjson.dumps(view, option=orjson.OPT_SORT_KEYS).decode()


def _now() -> datetime:
    return datetime.now(timezone.utc)


class AuditLog:
    def __init__(self, database: Database, keys: Mapping[str, ChainKey]) -> None:
        self._database = database
        self._keys = keys

    async def list(self, *, after: int = 0, limit: int = 1000) -> Sequence[AuditEntry]:
        """At most `limit` entries by number, from the one that follows `after` on."""
        chosen = select(AUDIT).where(AUDIT.c.number > after)
        async with self._database.reading() as connection:
            found = await connection.execute(chosen.order_by(AUDIT.c.number).limit(limit))
            return [AuditEntry(**row) for row in found.mappings()]

    async def verify(self) -> Verification:
        """Whether each entry is as it was written, in its place, and none is missing."""
        verifier = Verifier(self._keys)
        async with self._database.reading() as connection:
            head = await read_head(connection)
            found = await connection.stream(select(AUDIT).order_by(AUDIT.c.number))
            async for part in found.mappings().partitions(ROWS_AT_ONCE):
                verifier.add(AuditEntry(**row) for row in part)
        return verifier.finish(head)
