"""Changes of keys, tenants and operators' decisions, and the audit log that they leave.

Each is one transaction with its audit entry and a new generation.
The transaction first locks the row of `meta`, so that changes of all processes come one after the
other, and the chain has no forks.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field, replace
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
Entry = tuple[str, str, str, View | None, View | None]  # actor, action, object, before, after


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
            if change.recorded:
                entries = [(actor, *each) for each in change.recorded]
                generation = meta.generation + 1
                await self._append(connection, meta, change.at, entries, generation=generation)

    async def denied(self, times: Mapping[tuple[str, str, str], int]) -> None:
        """Records denied calls, by actor, object and code. The generation stays."""
        await self._note(
            [
                (actor, "denied", object, None, {"code": code, "times": number})
                for (actor, object, code), number in times.items()
            ]
        )

    async def note(self, action: str, object: str, *, actor: str, details: View) -> None:
        """Records what changes nothing here: the generation stays. See domain.endpoints."""
        await self._note([(actor, action, object, None, details)])

    async def _note(self, entries: Sequence[Entry]) -> None:
        async with self._database.writing() as connection:
            await self._append(connection, await _locked(connection), _now(), entries)

    async def _append(
        self,
        connection: AsyncConnection,
        meta: Row[Any],
        at: datetime,
        entries: Sequence[Entry],
        **counts: int,
    ) -> None:
        """Adds the entries to the chain. counts: other columns of `meta`."""
        head = _head(meta)
        for actor, action, object, before, after in entries:
            entry = AuditEntry(
                number=head.entries + 1,
                at=at,
                actor=actor,
                action=action,
                object=object,
                before=_json(before),
                after=_json(after),
                chain_key=self._key.id,
            )
            entry = replace(entry, mac=entry.chained(self._key, head.mac))
            await connection.execute(insert(AUDIT).values(asdict(entry)))
            head = AuditHead.sealed(entry.number, entry.mac, self._key)
        columns = {
            "audit_entries": head.entries,
            "audit_chain_key": head.chain_key,
            "audit_mac": head.mac,
            "audit_head": head.seal,
        }
        await connection.execute(update(META).values(**columns, **counts))


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
