"""Two requests with one key: of one proxy, and of two that share Redis."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from proxy.state.answer import Quotas
from proxy.state.memory_answers import MemoryRecords
from proxy.state.redis_answers import RedisRecords
from proxy.state.redis_connection import RedisConnection
from proxy.state.relay import Relay, RelayLimits
from proxy.telemetry.metrics import IdempotencyMetrics
from tests.fixtures.redis_server import PROGRAM, RedisServer, running

QUOTAS = Quotas(keep_s=3600, bytes=10_000_000, answers=100)
LIMITS = RelayLimits(
    grace_s=3600,
    resume_grace_s=3600,
    answer_bytes=1_000_000,
    memory_bytes=10_000_000,
    readers=100,
    keeps=True,
)
Pair = Callable[..., AbstractAsyncContextManager[tuple[Relay, Relay]]]


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    if PROGRAM is None:
        pytest.skip("needs redis-server or valkey-server: apt-get install redis-server")
    with running(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    """One that a test may kill."""
    with running(tmp_path) as server:
        yield server


@pytest.fixture(params=["memory", "redis"])
def pair(request: pytest.FixtureRequest) -> Pair:
    """pair(quotas=…, **limits) -> the relays of two proxies with Redis; else twice the same one."""
    url = request.getfixturevalue("redis_server").url if request.param == "redis" else None

    @asynccontextmanager
    async def made(quotas: Quotas = QUOTAS, **limits: float) -> AsyncIterator[tuple[Relay, Relay]]:
        if url is None:
            async with _relay(MemoryRecords(quotas), limits) as one:
                yield one, one
            return

        def records(redis: RedisConnection) -> RedisRecords:
            return RedisRecords(redis, quotas, answer_bytes=1_000_000, lease_ms=400)

        async with (
            RedisConnection(url, timeout_s=5) as near,
            RedisConnection(url, timeout_s=5) as far,
            _relay(records(near), limits) as one,
            _relay(records(far), limits) as other,
        ):
            yield one, other
            await near.answers.flushall()

    return made


def _relay(records: MemoryRecords | RedisRecords, limits: dict[str, float]) -> Relay:
    metrics = IdempotencyMetrics(CollectorRegistry())
    return Relay(records, replace(LIMITS, **limits), metrics)
