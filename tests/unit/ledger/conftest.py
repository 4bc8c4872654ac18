from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fixtures.redis_server import PROGRAM, RedisServer, running


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    if PROGRAM is None:
        pytest.skip("needs redis-server or valkey-server: apt-get install redis-server")
    folder: Path = tmp_path_factory.mktemp("redis")
    with running(folder) as server:
        yield server
