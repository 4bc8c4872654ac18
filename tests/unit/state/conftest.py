"""Two requests with one key: of one proxy, and of two that share Redis."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from proxy.state.answer import AnswerLimits
from proxy.state.memory_answers import MemoryRecords
from proxy.state.redis_answers import RedisRecords
from proxy.state.redis_connection import RedisConnection
from proxy.state.relay import Records, Relay
from proxy.telemetry.metrics import IdempotencyMetrics
from tests.fixtures.redis_server import PROGRAM, RedisServer, running

LIMITS = AnswerLimits(
    grace_s=3600,
    resume_grace_s=3600,
    keep_s=3600,
    kept_bytes=10_000_000,
    held_bytes=10_000_000,
    answer_bytes=1_000_000,
    tenant_answers=100,
    readers=100,
)
Pair = Callable[..., AbstractAsyncContextManager[tuple[Relay, Relay]]]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    if PROGRAM is None:
        pytest.skip("needs redis-server or valkey-server: apt-get install redis-server")
    with running(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    """One that a test may kill."""
    with running(tmp_path) as own:
        yield own


@pytest.fixture(params=["memory", "redis"])
def pair(request: pytest.FixtureRequest) -> Pair:
    """pair(**limits) -> the relays of two proxies with Redis; else twice the same one."""
    url = request.getfixturevalue("redis_server").url if request.param == "redis" else None

    @asynccontextmanager
    async def made(**changed: float) -> AsyncIterator[tuple[Relay, Relay]]:
        limits = replace(LIMITS, **changed)
        if url is None:
            async with relay_of(MemoryRecords(limits), limits) as one:
                yield one, one
            return
        async with (
            RedisConnection(url, timeout_s=5) as near,
            RedisConnection(url, timeout_s=5) as far,
            relay_of(RedisRecords(near, limits, lease_ms=400), limits) as one,
            relay_of(RedisRecords(far, limits, lease_ms=400), limits) as other,
        ):
            yield one, other
            await near.answers.flushall()

    return made


def relay_of(records: Records, limits: AnswerLimits = LIMITS) -> Relay:
    return Relay(records, limits, IdempotencyMetrics(CollectorRegistry()))
