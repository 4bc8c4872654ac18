"""The store of one process: everything durable, over one database. `app` makes it."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import dataclass

import structlog
from sqlalchemy import select

from proxy.access.store import migrations, record_rows
from proxy.access.store.change_log import AuditLog, ChangeLog, read_head
from proxy.access.store.database import Database
from proxy.access.store.denied_calls import DeniedCalls
from proxy.access.store.key_administration import IssuedKey, KeyAdministration
from proxy.access.store.pepper import Peppers
from proxy.access.store.stored_decisions import StoredDecisions
from proxy.access.store.tables import META
from proxy.access.store.tenant_administration import TenantAdministration
from proxy.access.store.usage_reports import UsageReports
from proxy.access.store.usage_writer import UsageWriter
from proxy.domain.endpoints import AuditTrail
from proxy.domain.errors import StoreUnavailable
from proxy.domain.key_records import KeyRecord, TenantRecord
from proxy.processes.errors import LaunchError


@dataclass(frozen=True, slots=True, kw_only=True)
class Administration:
    tenants: TenantAdministration
    keys: KeyAdministration
    usage: UsageReports
    audit: AuditLog


class StoredKeys:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def generation(self) -> int:
        async with self._database.reading() as connection:
            return int((await connection.execute(select(META.c.generation))).scalar_one())

    async def key(self, key_id: str) -> KeyRecord | None:
        async with self._database.reading() as connection:
            return await record_rows.find(connection, KeyRecord, key_id)

    async def tenant(self, name: str) -> TenantRecord | None:
        async with self._database.reading() as connection:
            return await record_rows.find(connection, TenantRecord, name)


logger = structlog.get_logger(__name__)


class Store:
    """keys: the KeySource. usage: the UsageStore. denied_calls: takes what authorization denied.
    decisions: operators', as domain.endpoints has them. audit_trail: takes what operators did that
    changes nothing here.

    `async with` writes usage and denied calls, and reads decisions, in the background, until the
    body ends.
    """

    def __init__(self, url: str, peppers: Peppers) -> None:
        self._database = Database(url)
        self._peppers = peppers
        self._changes = ChangeLog(self._database, peppers.chain_key)
        self._running = AsyncExitStack()
        self.keys = StoredKeys(self._database)
        self.usage = UsageWriter(self._database)
        self.denied_calls = DeniedCalls(self._changes)
        self.decisions = StoredDecisions(self._database, self._changes)
        self.audit_trail: AuditTrail = self._changes
        self.administration = Administration(
            tenants=TenantAdministration(self._database, self._changes),
            keys=KeyAdministration(self._database, self._changes, peppers.today),
            usage=UsageReports(self._database),
            audit=AuditLog(self._database, peppers.chain_keys),
        )

    async def prepare(self) -> None:
        """Brings the schema up to date, and compares the pepper with the one that was used.

        Raises:
            StoreUnavailable: the database cannot be reached.
            LaunchError: it was written by a newer release, or with another pepper.
        """
        await migrations.upgrade(self._database)
        async with self._database.reading() as connection:
            head = await read_head(connection)
        if head.entries and head.chain_key not in self._peppers.chain_keys:
            raise LaunchError(
                f"KEY_PEPPER is not the one with which the keys in {self._database.name} were "
                "made, so none of them would be accepted: set that one. To change it for good, put "
                "the earlier one into OLD_KEY_PEPPERS and rotate every key"
            )

    async def create_first_key(self) -> IssuedKey | None:
        """An admin key, if nothing was ever changed in this store; else None."""
        return await self.administration.keys.create_first()

    async def __aenter__(self) -> Store:
        """A database that does not answer now is no reason not to start: it may come back."""
        try:
            await self.prepare()
        except StoreUnavailable as error:
            logger.error(
                "the store does not answer",
                detail=error.detail,
                advice="look at the database that STORE_URL names; without it no key can be "
                "checked",
            )
        await self._running.enter_async_context(self.usage)
        await self._running.enter_async_context(self.denied_calls)
        await self._running.enter_async_context(self.decisions)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._running.aclose()
        await self.close()

    async def close(self) -> None:
        await self._database.close()
