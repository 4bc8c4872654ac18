"""schema: the tables of this release, from nothing and from version 1, by one process at a time."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import subprocess
import sys
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
from tests.unit.access.store.samples import ACTOR, KEY, LIMITS, opened

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


async def test_a_store_of_a_newer_release_is_refused(url):
    async with opened(url):
        pass
    database = Database(url)
    async with database.writing() as connection:
        await connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(LaunchError, match="a schema that this release does not know"):
        await schema.upgrade(database)
    await database.close()


START = """
import asyncio, sys
from tests.unit.access.store.samples import opened
async def main():
    async with opened(sys.argv[1]) as store:
        made = await store.keys.create_first()
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
