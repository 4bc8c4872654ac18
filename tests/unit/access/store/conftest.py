"""Both adapters of the store: each test runs over SQLite, and over PostgreSQL where it is."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Iterator
from itertools import count
from pathlib import Path

import pytest

from proxy.access.store.store import Store
from tests.unit.access.store import postgres
from tests.unit.access.store.samples import opened

NUMBERS = count()


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[postgres.PostgresServer]:
    if postgres.program("initdb") is None:
        pytest.skip(postgres.MISSING)
    # not below pytest's own folder, which only this user may enter
    with (
        tempfile.TemporaryDirectory(prefix="postgres-") as folder,
        postgres.running(Path(folder)) as server,
    ):
        yield server


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty database."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'store.db'}"
    return request.getfixturevalue("postgres_server").create(f"test{next(NUMBERS)}")


@pytest.fixture
async def store(url: str) -> AsyncIterator[Store]:
    async with opened(url) as store:
        yield store
