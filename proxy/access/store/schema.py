"""Brings a database to this release's schema. Called at every start."""

from __future__ import annotations

from sqlalchemy import Connection, insert, inspect, select, text, update
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.schema import CreateColumn

from proxy.access.store.database import POSTGRESQL, Database
from proxy.access.store.tables import FIRST_VERSION, KEYS, META, METADATA, TENANTS, VERSION
from proxy.domain.errors import LaunchError

# Tables that are missing are created; a column that a version has added says so.
LATER = [each for each in (*TENANTS.c, *KEYS.c) if each.info["since"] > FIRST_VERSION]
TWO_TABLES = "0002"  # of operators' decisions
VERSIONS = sorted({FIRST_VERSION, TWO_TABLES, *(each.info["since"] for each in LATER)})
LOCK = 7_046_029_254_386_353  # of PostgreSQL: any number that no other program takes
NO_AUDIT = {"audit_entries": 0, "audit_chain_key": "", "audit_mac": "", "audit_head": ""}


async def upgrade(database: Database) -> None:
    """Creates or upgrades the tables; processes that start together do it one after the other.

    Raises:
        LaunchError: a newer release, or another program, has written the database.
        StoreUnavailable: it cannot be reached.
    """
    async with database.reading() as connection:
        if await connection.run_sync(_version) == VERSIONS[-1]:
            return
    async with database.writing() as connection:
        await _upgrade(connection, database.name)


async def _upgrade(connection: AsyncConnection, name: str) -> None:
    """In one transaction: SQLite's is exclusive, PostgreSQL's takes a lock of its own."""
    if connection.dialect.name == POSTGRESQL:
        await connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": LOCK})
    found = await connection.run_sync(_version)
    if found not in (None, *VERSIONS):
        raise LaunchError(
            f"The store {name} has a schema that this release does not know (version {found}): use "
            "the newer release that wrote it, or restore the backup from before that upgrade"
        )
    if found is None and (taken := await connection.run_sync(_tables_named_as_ours)):
        raise LaunchError(
            f"The store {name} has tables named {', '.join(taken)}, but no version of a schema: it "
            "is another program's, or was restored in part. Name an empty database in STORE_URL, "
            "or restore the whole backup into one"
        )
    await connection.run_sync(METADATA.create_all)
    if found is None:
        await connection.execute(insert(META).values(id=1, generation=0, **NO_AUDIT))
        await connection.execute(insert(VERSION).values(version_num=VERSIONS[-1]))
        return
    for column in LATER:
        if column.info["since"] > found:
            added = CreateColumn(column).compile(dialect=connection.dialect)
            await connection.execute(text(f"ALTER TABLE {column.table.name} ADD COLUMN {added}"))
    await connection.execute(update(VERSION).values(version_num=VERSIONS[-1]))


def _version(connection: Connection) -> str | None:
    """None: it has no store."""
    if not inspect(connection).has_table(VERSION.name):
        return None
    return connection.execute(select(VERSION.c.version_num)).scalar()


def _tables_named_as_ours(connection: Connection) -> list[str]:
    return sorted(METADATA.tables.keys() & set(inspect(connection).get_table_names()))
