"""Both adapters of the store: each test runs over SQLite, and over PostgreSQL where it is."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from proxy.access.store.store import Store
from tests.fixtures.stack import HANG_S, free_port
from tests.unit.access.store.samples import opened

NUMBERS = count()
DEBIAN = Path("/usr/lib/postgresql")  # its programs are not on PATH
UNPRIVILEGED = "postgres"  # PostgreSQL refuses to run as root
CONFIGURATION = """
listen_addresses = '127.0.0.1'
port = {port}
unix_socket_directories = '{folder}'
fsync = off
full_page_writes = off
"""


# What `sqlite3 NAME ".backup COPY"` does, which not every machine has.
COPY = """
import sqlite3, sys
sqlite3.connect(sys.argv[1]).backup(sqlite3.connect(sys.argv[2]))
"""


def program(name: str) -> str | None:
    found = sorted(DEBIAN.glob(f"*/bin/{name}"))
    return shutil.which(name) or (str(found[-1]) if found else None)


class PostgresServer:
    """create(name): the URL of a new database. stop(), start(): as an outage does."""

    def __init__(self, folder: Path) -> None:
        self._data = folder / "data"
        self._user = UNPRIVILEGED if os.geteuid() == 0 else None
        self._port = free_port()
        if self._user is not None:
            shutil.chown(folder, self._user)
        self._run("initdb", "-D", self._data, "-U", "tests", "-A", "trust", "--no-sync")
        with (self._data / "postgresql.conf").open("a") as file:
            file.write(CONFIGURATION.format(port=self._port, folder=folder))

    def create(self, database: str) -> str:
        """The URL of a new, empty database."""
        options = ("-h", "127.0.0.1", "-p", self._port, "-U", "tests")
        self._run("createdb", *options, database)
        return f"postgresql://tests@127.0.0.1:{self._port}/{database}"

    def start(self) -> None:
        log = self._data / "log"
        self._run("pg_ctl", "start", "-w", "-t", HANG_S, "-D", self._data, "-l", log)

    def stop(self) -> None:
        """At once, as if it were killed; what was committed is there after the next start."""
        self._run("pg_ctl", "stop", "-w", "-m", "immediate", "-D", self._data)

    def _run(self, name: str, *arguments: object) -> None:
        command = [str(program(name)), *map(str, arguments)]
        ran = subprocess.run(command, user=self._user, capture_output=True, cwd="/", check=False)
        assert ran.returncode == 0, ran.stderr.decode()


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    if program("initdb") is None:
        pytest.skip("no PostgreSQL server here: apt-get install postgresql")
    # not below pytest's own folder, which only this user may enter
    with tempfile.TemporaryDirectory(prefix="postgres-") as folder:
        server = PostgresServer(Path(folder))
        server.start()
        yield server
        server.stop()


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty database."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'store.db'}"
    return request.getfixturevalue("postgres_server").create(f"test{next(NUMBERS)}")


@pytest.fixture
def backup(tmp_path: Path) -> Callable[[str], Path]:
    """Copies a database that may be in use, as docs/deployment.md says."""

    def backup(url: str) -> Path:
        copy = tmp_path / f"backup{next(NUMBERS)}"
        command = [program("pg_dump"), url, "-f", str(copy)]
        if url.startswith("sqlite"):
            name = url.removeprefix("sqlite:///")
            command = [sys.executable, "-c", COPY, name, str(copy)]
        subprocess.run(command, check=True)
        return copy

    return backup


@pytest.fixture
def restored(request: pytest.FixtureRequest, url: str, tmp_path: Path) -> Callable[[Path], str]:
    """The URL of a database that has what the backup has, and nothing else."""

    def restored(copy: Path) -> str:
        if url.startswith("sqlite"):
            return f"sqlite:///{copy}"
        empty = request.getfixturevalue("postgres_server").create(f"test{next(NUMBERS)}")
        command = [program("psql"), empty, "-q", "-v", "ON_ERROR_STOP=1", "-f", str(copy)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        return empty

    return restored


@pytest.fixture
async def store(url: str) -> AsyncIterator[Store]:
    async with opened(url) as store:
        yield store
