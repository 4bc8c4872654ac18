"""Brings a database to this release's schema, with alembic's migrations. Called at every start."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Connection, text

from proxy.access.store.database import POSTGRESQL, Database
from proxy.domain.errors import LaunchError

if TYPE_CHECKING:
    from alembic.config import Config

MIGRATIONS = Path(__file__).parent
LOCK = 7_046_029_254_386_353  # of PostgreSQL: any number that no other program takes


async def upgrade(database: Database) -> None:
    """Creates or upgrades the tables; processes that start together do it one after the other.

    Raises:
        LaunchError: a newer release has written the database.
        StoreUnavailable: it cannot be reached.
    """
    async with database.writing() as connection:
        await connection.run_sync(_upgrade, database.name)


def _upgrade(connection: Connection, name: str) -> None:
    """In one transaction: SQLite's is exclusive, PostgreSQL's takes a lock of its own."""
    from alembic import command
    from alembic.util import CommandError

    if connection.dialect.name == POSTGRESQL:
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": LOCK})
    try:
        command.upgrade(config(connection), "head")
    except CommandError as error:
        raise LaunchError(
            f"The store {name} has a schema that this release does not know ({error}): use the "
            "newer release that wrote it, or restore the backup from before that upgrade"
        ) from error


def config(connection: Connection) -> Config:
    """Alembic's configuration, for its commands over this connection."""
    from alembic.config import Config

    made = Config(attributes={"connection": connection})
    made.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    made.set_main_option("path_separator", "os")
    return made
