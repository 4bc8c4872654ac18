"""Connections to the store's database: SQLite in WAL mode, or PostgreSQL.

SQLAlchemy's pool runs SQLite in threads, so that the event loop never waits for a disk.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, event, exc, make_url
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from proxy.domain.errors import StoreUnavailable

SQLITE, POSTGRESQL = "sqlite", "postgresql"
WAIT_S = 5.0  # for a connection of the pool, and to PostgreSQL
LOCK_WAIT_S, RETRY_S = 15.0, 0.05  # for another writer of SQLite, in this or another process
STATEMENT_S = 30.0  # of PostgreSQL; a report over years takes seconds
CONNECTIONS = 4  # of one process
PRAGMAS = (
    f"busy_timeout = {int(LOCK_WAIT_S * 1000)}",
    "synchronous = FULL",  # an audit entry that is committed survives a power cut
    "foreign_keys = ON",
)
# Errors of a statement that is wrong, or refused by a constraint: the database itself answers.
OURS = (exc.IntegrityError, exc.ProgrammingError, exc.DataError, exc.NotSupportedError)


class Database:
    """One process's connections to the database that a URL names.

    Raises StoreUnavailable wherever the database cannot be reached, or does not answer in time.
    """

    def __init__(self, url: str) -> None:
        self.url = driver_url(url)
        self._engine = _engine(self.url)
        self._unreachable = _unreachable(self.url)
        is_sqlite = self.url.get_backend_name() == SQLITE
        self._writer = self._engine.execution_options(writes=True)
        self._reader = (
            self._engine
            if is_sqlite
            else self._engine.execution_options(isolation_level="REPEATABLE READ")
        )

    def reading(self) -> AbstractAsyncContextManager[AsyncConnection]:
        """A transaction that sees one state of the database."""
        return self._transaction(self._reader)

    def writing(self) -> AbstractAsyncContextManager[AsyncConnection]:
        """A transaction that may write. In SQLite it excludes all other writers from its start."""
        return self._transaction(self._writer)

    @asynccontextmanager
    async def _transaction(self, engine: AsyncEngine) -> AsyncIterator[AsyncConnection]:
        try:
            async with engine.begin() as connection:
                yield connection
        except OURS:
            raise
        except self._unreachable as error:
            raise StoreUnavailable(detail=f"{self.name}: {_in_words(error)}") from error

    async def close(self) -> None:
        await self._engine.dispose()

    @property
    def name(self) -> str:
        """The URL without its password."""
        return self.url.render_as_string(hide_password=True)


def driver_url(given: str) -> URL:
    """The URL with the driver that we use.

    Raises:
        ValueError: it is neither `sqlite:///<path>` nor `postgresql://…`.
    """
    try:
        url = make_url(given)
    except exc.ArgumentError:
        raise ValueError("it is no URL") from None
    match url.drivername:
        case "sqlite":
            if not url.database or url.database == ":memory:":
                raise ValueError(
                    "it names no file: write sqlite:///relative or sqlite:////absolute"
                )
            return url.set(drivername="sqlite+aiosqlite")
        case "postgresql" | "postgres":
            query = dict(url.query)
            if "sslmode" in query:  # libpq's name; asyncpg's is `ssl`, with the same values
                query["ssl"] = query.pop("sslmode")
            return url.set(drivername="postgresql+asyncpg", query=query)
    raise ValueError("it must start with sqlite:/// or postgresql://")


def _engine(url: URL) -> AsyncEngine:
    """Raises ModuleNotFoundError: PostgreSQL's driver is not installed."""
    if url.get_backend_name() == POSTGRESQL:
        return create_async_engine(
            url,
            pool_size=CONNECTIONS,
            max_overflow=0,
            pool_timeout=WAIT_S,
            pool_pre_ping=True,
            connect_args={"timeout": WAIT_S, "command_timeout": STATEMENT_S},
        )
    engine = create_async_engine(
        url, pool_size=CONNECTIONS, max_overflow=0, pool_timeout=LOCK_WAIT_S + 1
    )
    event.listen(engine.sync_engine, "do_connect", _with_file)
    event.listen(engine.sync_engine, "connect", _prepared)
    event.listen(engine.sync_engine, "begin", _begun)
    return engine


def _with_file(dialect: Any, record: Any, arguments: list[Any], options: dict[str, Any]) -> None:
    """Creates the file for its owner only; SQLite gives its other files the same rights."""
    path = Path(arguments[0])
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=0o600)


def _prepared(connection: Any, record: Any) -> None:
    """connection: SQLAlchemy's adapter of aiosqlite's."""
    connection.isolation_level = None  # sqlite3 must not begin transactions by itself
    cursor = connection.cursor()
    for pragma in PRAGMAS:
        cursor.execute(f"PRAGMA {pragma}")
    end = time.monotonic() + LOCK_WAIT_S
    while True:
        try:
            cursor.execute("PRAGMA journal_mode = WAL")
            break
        except sqlite3.OperationalError as error:
            # In a new file this does not wait for another writer, whatever busy_timeout is.
            if "locked" not in str(error) or time.monotonic() > end:
                raise
        connection.run_async(lambda _: asyncio.sleep(RETRY_S))
    cursor.close()


def _begun(connection: Connection) -> None:
    """A writer takes the lock at once: one that has read before it writes could not wait for it."""
    writes = connection.get_execution_options().get("writes", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _unreachable(url: URL) -> tuple[type[Exception], ...]:
    """Errors that say that the database does not answer, besides OURS."""
    found: tuple[type[Exception], ...] = (
        exc.DBAPIError,
        exc.TimeoutError,
        OSError,
        asyncio.TimeoutError,
    )
    if url.get_backend_name() == POSTGRESQL:
        import asyncpg

        found += (asyncpg.PostgresError, asyncpg.InterfaceError)
    return found


def _in_words(error: Exception) -> str:
    cause = error.orig if isinstance(error, exc.DBAPIError) and error.orig is not None else error
    return f"{type(cause).__name__}: {cause}"


def storable(text: str) -> bool:
    return cleaned(text) == text


def cleaned(text: str) -> str:
    """With U+FFFD for NUL, and `?` for half of a surrogate pair."""
    return text.encode("utf-8", "replace").decode().replace("\0", "\ufffd")
