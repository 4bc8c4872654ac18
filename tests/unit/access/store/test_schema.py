"""schema: migrations give the tables of this release, from nothing and from version 1."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import text

from tests.fixtures.stack import ROOT
from tests.unit.access.store.samples import opened
from triton_openai.proxy.access.store import schema, tables
from triton_openai.proxy.access.store.database import Database
from triton_openai.proxy.processes.errors import LaunchError


async def differences(database: Database) -> list[object]:
    options = {"compare_type": True, "compare_server_default": True}
    async with database.reading() as connection:
        return await connection.run_sync(
            lambda sync: compare_metadata(
                MigrationContext.configure(sync, opts=options), tables.METADATA
            )
        )


def test_migrations_create_the_tables_of_the_code(url):
    async def main() -> None:
        database = Database(url)
        await schema.upgrade(database)
        await schema.upgrade(database)
        assert await differences(database) == []
        await database.close()

    asyncio.run(main())


def test_only_one_head_and_every_version_from_1_on():
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(schema.MIGRATIONS))
    script = ScriptDirectory.from_config(config)
    revisions = [each.revision for each in script.walk_revisions()]
    assert revisions[::-1] == [f"{n:04}" for n in range(1, len(revisions) + 1)]
    assert script.get_heads() == [revisions[0]]


def test_a_store_of_a_newer_release_is_refused(url):
    async def main() -> None:
        async with opened(url):
            pass
        database = Database(url)
        async with database.writing() as connection:
            await connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
        with pytest.raises(LaunchError, match="a schema that this release does not know"):
            await schema.upgrade(database)
        await database.close()

    asyncio.run(main())


START = """
import asyncio, sys
from tests.unit.access.store.samples import opened
async def main():
    async with opened(sys.argv[1]) as store:
        made = await store.create_first_key()
        print("none" if made is None else made.key)
asyncio.run(main())
"""


def test_of_processes_that_start_together_one_makes_the_tables_and_the_first_key(url):
    command = [sys.executable, "-c", START, url]
    running = [
        subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for _ in range(3)
    ]
    printed = [(one.communicate(), one.returncode) for one in running]
    assert [status for _, status in printed] == [0, 0, 0], printed
    keys = sorted(out.decode().strip() for (out, _), _ in printed)
    assert keys[:2] == ["none", "none"]
    assert keys[2].startswith("sk-")
