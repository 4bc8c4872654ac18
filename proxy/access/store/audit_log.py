"""Reads the audit log, and verifies its chain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlalchemy import select

from proxy.access.store.audit_chain import AuditEntry, Verification, Verifier
from proxy.access.store.change_log import read_head
from proxy.access.store.database import Database
from proxy.access.store.pepper import ChainKey
from proxy.access.store.tables import AUDIT

ROWS_AT_ONCE = 500  # of which the event loop computes the MACs in one go, about 5 ms


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
