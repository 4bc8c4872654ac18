"""Two requests with one key: of one proxy, and of two that share Redis."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from proxy.idempotency.memory_records import MemoryRecords
from proxy.idempotency.quotas import Quotas
from proxy.idempotency.redis_records import RedisRecords
from proxy.idempotency.relay import Relay, RelayLimits
from proxy.telemetry.idempotency_metrics import IdempotencyMetrics
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
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str | None]:
    if PROGRAM is None:
        yield None
        return
    with running(tmp_path_factory.mktemp("redis")) as server:
        yield server.url


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    """One that a test may kill."""
    with running(tmp_path) as server:
        yield server


@pytest.fixture(params=["memory", "redis"])
def pair(request: pytest.FixtureRequest) -> Pair:
    """pair(quotas=…, **limits) -> the relays of two proxies with Redis; else twice the same one."""
    url = request.getfixturevalue("redis_url") if request.param == "redis" else None
    if request.param == "redis" and url is None:
        pytest.skip("needs redis-server or valkey-server")

    @asynccontextmanager
    async def made(quotas: Quotas = QUOTAS, **limits: float) -> AsyncIterator[tuple[Relay, Relay]]:
        if url is None:
            async with _relay(MemoryRecords(quotas), limits) as one:
                yield one, one
            return

        def records() -> RedisRecords:
            return RedisRecords(url, quotas, answer_bytes=1_000_000, timeout_s=5, lease_ms=400)

        async with _relay(records(), limits) as one, _relay(records(), limits) as other:
            yield one, other
        flush(url)

    return made


def flush(url: str) -> None:
    import redis as client

    with client.Redis.from_url(url) as connection:
        connection.flushall()


def _relay(records: MemoryRecords | RedisRecords, limits: dict[str, float]) -> Relay:
    metrics = IdempotencyMetrics(CollectorRegistry())
    return Relay(records, replace(LIMITS, **limits), metrics)
