"""schema: migrations give the tables of this release, from nothing and from version 1."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import date, datetime

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Column, Connection, Date, DateTime, LargeBinary, MetaData, Table, text

from proxy.access.authentication import api_key
from proxy.access.store import migrations, tables
from proxy.access.store.database import Database
from proxy.access.store.pepper import Peppers
from proxy.access.store.usage_reports import UsagePeriod
from proxy.domain.errors import LaunchError
from tests.fixtures.stack import ROOT
from tests.unit.access.store.samples import ACTOR, LIMITS, ORDER, opened

pytestmark = pytest.mark.anyio

VERSION_1 = json.loads((ROOT / "tests/fixtures/published/store_version_1.json").read_text())


async def differences(database: Database) -> list[object]:
    options = {"compare_type": True, "compare_server_default": True}
    async with database.reading() as connection:
        return await connection.run_sync(
            lambda sync: compare_metadata(
                MigrationContext.configure(sync, opts=options), tables.METADATA
            )
        )


async def test_migrations_create_the_tables_of_the_code(url):
    database = Database(url)
    await migrations.upgrade(database)
    await migrations.upgrade(database)
    assert await differences(database) == []
    await database.close()


def value(column: Column[object], stored: object) -> object:
    """A value of the file as the column takes it."""
    if not isinstance(stored, str):
        return stored
    if isinstance(column.type, LargeBinary):
        return bytes.fromhex(stored)
    if isinstance(column.type, DateTime):
        return datetime.fromisoformat(stored)
    return date.fromisoformat(stored) if isinstance(column.type, Date) else stored


def fill(connection: Connection) -> None:
    """Makes the tables of version 1, and puts the rows of the file into them."""
    command.upgrade(migrations.config(connection), "0001")
    for name, rows in VERSION_1["rows"].items():
        table = Table(name, MetaData(), autoload_with=connection)
        if name == "meta":  # the migration has made its one row
            connection.execute(table.delete())
        for row in rows:
            values = {each: value(table.c[each], stored) for each, stored in row.items()}
            connection.execute(table.insert().values(values))


async def test_a_store_of_version_1_is_read_after_the_upgrade(url):
    """Its rows were written by the release with that version."""

    database = Database(url)
    async with database.writing() as connection:
        await connection.run_sync(fill)
    await database.close()
    pepper = VERSION_1["pepper"].encode()
    async with opened(url, Peppers(pepper)) as store:
        found = await store.administration.audit.verify()
        assert (found.problems, found.entries) == ((), 4)
        before, today = (key.encode() for key in VERSION_1["keys"])
        key = await store.keys.key(api_key.id_of(today))
        assert key.digest == api_key.digest(today, pepper)
        assert key.overlap_digest == api_key.digest(before, pepper)
        assert (key.limits, key.models, key.scopes) == (LIMITS, ORDER.models, ORDER.scopes)
        tenant = await store.keys.tenant("acme")
        assert (tenant.limits, tenant.of_models) == (LIMITS, {"demo": LIMITS})
        assert (tenant.weight, tenant.max_priority, key.max_priority) == (1.0, None, None)
        assert tenant.records is False
        march = UsagePeriod(first=date(2026, 3, 1), last=date(2026, 3, 31))
        (used,) = await store.administration.usage.report(march)
        assert (used.requests, used.output_tokens, used.cost) == (1, 7, 0.5)
        await store.administration.tenants.create(ACTOR, "later")
        assert (await store.administration.audit.verify()).ok


def test_only_one_head_and_every_version_from_1_on():
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(migrations.MIGRATIONS))
    script = ScriptDirectory.from_config(config)
    revisions = [each.revision for each in script.walk_revisions()]
    assert revisions[::-1] == [f"{n:04}" for n in range(1, len(revisions) + 1)]
    assert script.get_heads() == [revisions[0]]


async def test_a_store_of_a_newer_release_is_refused(url):
    async with opened(url):
        pass
    database = Database(url)
    async with database.writing() as connection:
        await connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(LaunchError, match="a schema that this release does not know"):
        await migrations.upgrade(database)
    await database.close()


START = """
import asyncio, sys
from tests.unit.access.store.samples import ACTOR, LIMITS, ORDER, opened
from proxy.access.authentication import api_key
async def main():
    async with opened(sys.argv[1]) as store:
        made = await store.create_first_key()
        print("none" if made is None else made.key)
asyncio.run(main())
"""


def test_of_processes_that_start_together_one_makes_the_tables_and_the_first_key(url):
    start = [sys.executable, "-c", START, url]
    running = [
        subprocess.Popen(start, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for _ in range(3)
    ]
    printed = [(one.communicate(), one.returncode) for one in running]
    assert [status for _, status in printed] == [0, 0, 0], printed
    keys = sorted(out.decode().strip() for (out, _), _ in printed)
    assert keys[:2] == ["none", "none"]
    assert keys[2].startswith("sk-")
