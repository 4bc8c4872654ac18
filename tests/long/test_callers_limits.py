"""50 tenants, 500 keys, two proxies, over 2,000 requests: no limit is exceeded, each is usable."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from tests.fixtures.limit_load.faults import (
    with_a_proxy_killed,
    with_redis_killed_and_closed,
    with_redis_killed_and_shared,
)
from tests.fixtures.limit_load.scenario import FULL
from tests.fixtures.redis_server import RedisServer, needs_redis, running


@pytest.fixture
def redis(tmp_path) -> Iterator[RedisServer]:
    folder = tmp_path / "redis"
    folder.mkdir()
    with running(folder) as server:
        yield server


@needs_redis
def test_while_a_proxy_is_killed(start, scripted_stack, tmp_path, redis):
    asyncio.run(with_a_proxy_killed(start, scripted_stack, tmp_path, FULL, redis))


@needs_redis
def test_while_redis_is_killed_and_nothing_is_let_through(start, scripted_stack, tmp_path, redis):
    asyncio.run(with_redis_killed_and_closed(start, scripted_stack, tmp_path, FULL, redis))


@needs_redis
def test_while_redis_is_killed_and_each_proxy_has_its_share(start, scripted_stack, tmp_path, redis):
    asyncio.run(with_redis_killed_and_shared(start, scripted_stack, tmp_path, FULL, redis))
