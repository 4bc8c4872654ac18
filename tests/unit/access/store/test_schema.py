"""schema: the tables of this release, from nothing and from version 1, by one process at a time."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import date, datetime

import pytest
from sqlalchemy import Column, Connection, Date, DateTime, LargeBinary, MetaData, inspect, text

from proxy.access.authentication import api_key
from proxy.access.store import schema
from proxy.access.store.database import Database
from proxy.access.store.tables import METADATA, VERSION
from proxy.access.store.usage import UsagePeriod
from proxy.domain.errors import LaunchError
from tests.fixtures.stack import HANG_S, ROOT
from tests.unit.access.store.samples import ACTOR, KEY, LIMITS, PEPPER, opened

pytestmark = pytest.mark.anyio

MARCH = UsagePeriod(first=date(2026, 3, 1), last=date(2026, 3, 31))
VERSION_1 = json.loads((ROOT / "tests/fixtures/published/store_version_1.json").read_text())


def described(connection: Connection) -> dict[str, object]:
    """All tables as the database has them."""
    found = inspect(connection)
    return {
        name: (
            {
                (c["name"], str(c["type"]), c["nullable"], c["default"])
                for c in found.get_columns(name)
            },
            found.get_pk_constraint(name)["constrained_columns"],
            found.get_foreign_keys(name),
            found.get_indexes(name),
        )
        for name in sorted(found.get_table_names())
    }


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
    """Leaves those tables and columns that the file of version 1 has, with its rows."""
    for table in METADATA.sorted_tables:
        rows = VERSION_1["rows"].get(table.name)
        if rows is None and table is not VERSION:
            connection.execute(text(f"DROP TABLE {table.name}"))
        for name in {*table.c.keys()} - rows[0].keys() if rows else ():
            connection.execute(text(f"ALTER TABLE {table.name} DROP COLUMN {name}"))
    connection.execute(text("DELETE FROM meta"))
    connection.execute(text("UPDATE alembic_version SET version_num = '0001'"))
    left = MetaData()
    left.reflect(connection)
    for table in left.sorted_tables:
        for row in VERSION_1["rows"].get(table.name, ()):
            values = {each: value(table.c[each], stored) for each, stored in row.items()}
            connection.execute(table.insert().values(values))


async def test_a_store_of_version_1_is_read_after_the_upgrade_and_has_the_tables_of_a_new_one(url):
    """Its rows were written by the release with that version."""
    database = Database(url)
    await schema.upgrade(database)
    async with database.writing() as connection:
        new = await connection.run_sync(described)
        await connection.run_sync(fill)
        assert await connection.run_sync(described) != new
    pepper = VERSION_1["pepper"].encode()
    async with opened(url, pepper) as store:
        found = await store.audit.verify()
        assert (found.problems, found.entries) == ((), 4)
        before, today = (key.encode() for key in VERSION_1["keys"])
        key = await store.keys.key(api_key.id_of(today))
        assert key.digest == api_key.digest(today, pepper)
        assert key.overlap_digest == api_key.digest(before, pepper)
        assert (key.limits, key.models, key.scopes) == (LIMITS, KEY["models"], KEY["scopes"])
        tenant = await store.keys.tenant("acme")
        assert (tenant.limits, tenant.of_models) == (LIMITS, {"demo": LIMITS})
        assert (tenant.weight, tenant.max_priority, key.max_priority) == (1.0, None, None)
        assert tenant.records is False
        march = UsagePeriod(first=date(2026, 3, 1), last=date(2026, 3, 31))
        (used,) = await store.usage.report(march)
        assert (used["requests"], used["output_tokens"], used["cost"]) == (1, 7, 0.5)
        await store.tenants.create(ACTOR, "later")
        assert (await store.audit.verify()).ok
    async with database.reading() as connection:
        assert await connection.run_sync(described) == new
    await database.close()


@asynccontextmanager
async def refused(url: str, statement: str, match: str) -> AsyncIterator[Database]:
    """What the statement makes of the database is refused, and left as it is."""
    database = Database(url)
    async with database.writing() as connection:
        await connection.execute(text(statement))
        before = await connection.run_sync(described)
    with pytest.raises(LaunchError, match=match):
        await schema.upgrade(database)
    async with database.reading() as connection:
        assert await connection.run_sync(described) == before
    yield database
    await database.close()


async def test_a_store_of_a_newer_release_is_refused_and_not_changed(url):
    async with opened(url):
        pass
    newer = "UPDATE alembic_version SET version_num = '9999'"
    async with refused(url, newer, "does not know .version 9999.: use the newer release"):
        pass


async def test_a_database_of_another_program_is_refused_and_not_changed(url):
    async with refused(url, "CREATE TABLE tenants (id INTEGER)", "named tenants, .* an empty"):
        pass


@pytest.mark.parametrize("version", schema.VERSIONS[:-1])
async def test_from_each_earlier_version_to_this_one_and_back_by_the_backup(
    url, version, backup, restored
):
    """A proxy of the earlier release may run on meanwhile: what it writes is complete."""
    database = Database(url)
    await schema.upgrade(database)
    async with database.writing() as connection:
        new = await connection.run_sync(described)
        for column in schema.LATER:
            if column.info["since"] > version:
                drop = f"ALTER TABLE {column.table.name} DROP COLUMN {column.name}"
                await connection.execute(text(drop))
        await connection.execute(text(f"UPDATE alembic_version SET version_num = '{version}'"))
        old = await connection.run_sync(described)
        their = MetaData()
        await connection.run_sync(their.reflect)
    saved = backup(url)
    await schema.upgrade(database)
    async with database.writing() as connection:
        assert await connection.run_sync(described) == new
        row = next(iter(VERSION_1["rows"]["tenants"]))
        table = their.tables["tenants"]
        values = {name: value(table.c[name], stored) for name, stored in row.items()}
        await connection.execute(table.insert().values(values))
    await database.close()
    async with opened(url) as store:
        assert (await store.keys.tenant("acme")).weight == 1.0
    again = Database(restored(saved))
    async with again.reading() as connection:
        assert await connection.run_sync(described) == old
        assert await connection.run_sync(schema._version) == version
    await again.close()


async def test_a_backup_of_a_store_in_use_has_its_keys_and_a_complete_audit_log(
    url, backup, restored
):
    async with opened(url) as store:
        await store.tenants.create(ACTOR, "acme")
        made = await store.keys.create(ACTOR, "acme", **KEY)
        saved = backup(url)
        await store.tenants.create(ACTOR, "later")
    async with opened(restored(saved)) as store:
        found = await store.keys.key(api_key.id_of(made.key.encode()))
        assert found.digest == api_key.digest(made.key.encode(), PEPPER)
        assert await store.keys.tenant("later") is None
        audit = await store.audit.verify()
        assert (audit.ok, audit.entries) == (True, 2)


START = """
import asyncio, sys
from tests.unit.access.store.samples import opened
async def main():
    async with opened(sys.argv[1]) as store:
        made = await store.keys.create_first(lambda made: None)
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


async def test_a_new_file_that_another_process_writes_is_waited_for(tmp_path):
    """SQLite itself refuses the change to WAL at once then: `database is locked`."""
    other = sqlite3.connect(tmp_path / "store.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    opening = asyncio.create_task(opened_once(f"sqlite:///{tmp_path / 'store.db'}"))
    await asyncio.sleep(0.3)
    assert not opening.done()
    other.execute("COMMIT")
    await asyncio.wait_for(opening, HANG_S)
    other.close()


async def opened_once(url: str) -> None:
    async with opened(url) as store:
        await store.tenants.create(ACTOR, "acme")


WRITES = """
import asyncio, sys
from tests.unit.access.store.samples import opened, used
async def main():
    async with opened(sys.argv[1]) as store:
        for number in range(5):
            await store.tenants.create("writer", f"{sys.argv[2]}-{number}")
            store.usage.add(used())
            await store.usage.flush()
asyncio.run(main())
"""


def test_several_processes_that_write_one_file_wait_for_one_another(tmp_path):
    url = f"sqlite:///{tmp_path / 'store.db'}"
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITES, url, f"w{number}"], cwd=ROOT, stderr=subprocess.PIPE
        )
        for number in range(4)
    ]
    said = [one.communicate()[1].decode() for one in writers]
    assert [one.returncode for one in writers] == [0, 0, 0, 0], said

    async def totals() -> tuple[int, int, bool]:
        async with opened(url) as store:
            (whole,) = await store.usage.report(MARCH, by=())
            verified = await store.audit.verify()
            return verified.entries, whole["requests"], verified.ok

    assert asyncio.run(totals()) == (20, 20, True)
