"""The store of one process: everything durable, over one database. `app` makes it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack

import structlog

from proxy.access.store import schema
from proxy.access.store.audit_log import AuditLog
from proxy.access.store.audited_calls import AuditedCalls
from proxy.access.store.database import Database
from proxy.access.store.records import Keys, Tenants
from proxy.access.store.stored_decisions import StoredDecisions
from proxy.access.store.usage import Usage
from proxy.domain.errors import StoreUnavailable

logger = structlog.get_logger(__name__)


class Store:
    """keys: also the KeySource. usage: also the UsageStore. audit: also the AuditTrail.
    audited_calls: takes what authorization denied, and reads of keys and usage. decisions:
    operators', as domain.endpoints has them.

    pepper: makes digests of keys and audit entries. earlier: only verify audit entries.

    `async with` writes usage and audited calls, and reads decisions, in the background, until the
    body ends.
    """

    def __init__(self, url: str, pepper: bytes, earlier: Sequence[bytes] = ()) -> None:
        self._database = Database(url)
        self._running = AsyncExitStack()
        self.audit = AuditLog(self._database, pepper, earlier)
        self.tenants = Tenants(self._database, self.audit)
        self.keys = Keys(self._database, self.audit, self.tenants, pepper)
        self.usage = Usage(self._database)
        self.audited_calls = AuditedCalls(self.audit)
        self.decisions = StoredDecisions(self._database, self.audit)

    async def prepare(self) -> None:
        """Brings the schema up to date, and compares the pepper with the one that was used.

        Raises:
            StoreUnavailable: the database cannot be reached.
            LaunchError: it was written by a newer release, or with another pepper.
        """
        await schema.upgrade(self._database)
        await self.audit.check_pepper()

    async def __aenter__(self) -> Store:
        """A database that does not answer now does not prevent the start: it may come back."""
        try:
            await self.prepare()
        except StoreUnavailable as error:
            logger.error(
                "the store does not answer",
                detail=error.detail,
                advice="look at the database that STORE_URL names; without it no key can be "
                "checked",
            )
        for each in (self.usage, self.audited_calls, self.decisions):
            await self._running.enter_async_context(each)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._running.aclose()
        await self.close()

    async def close(self) -> None:
        await self._database.close()
