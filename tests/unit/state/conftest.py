"""Stores of streams, and relays: of one proxy, and of two that share Redis."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from proxy.state.answer import AnswerLimits
from proxy.state.memory_streams import MemoryStreams
from proxy.state.redis_connection import RedisConnection
from proxy.state.redis_streams import RedisStreams
from proxy.state.relay import Relay
from proxy.state.streams import StreamLimits, StreamStore
from proxy.telemetry.metrics import IdempotencyMetrics
from tests.fixtures.redis_server import PROGRAM, RedisServer, running

LIMITS = AnswerLimits(
    grace_s=3600,
    resume_grace_s=3600,
    keep_s=3600,
    kept_bytes=10_000_000,
    held_bytes=10_000_000,
    stream_bytes=1_000_000,
    tenant_streams=100,
    readers=100,
)
Stores = Callable[..., AbstractAsyncContextManager[tuple[StreamStore, StreamStore]]]
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


@asynccontextmanager
async def two_stores(
    url: str, limits: StreamLimits = LIMITS, lease_ms: int = 60_000, **options: float
) -> AsyncIterator[tuple[RedisStreams, RedisStreams]]:
    """The stores of two proxies that share a Redis. options: of their connections."""
    options = {"timeout_s": 5, **options}
    async with RedisConnection(url, **options) as near, RedisConnection(url, **options) as far:
        await near.answers.flushall()
        one, other = (RedisStreams(each, "test", limits, lease_ms=lease_ms) for each in (near, far))
        yield one, other


@pytest.fixture(params=["memory", "redis"])
def stores(request: pytest.FixtureRequest) -> Stores:
    """stores(**limits) -> those of two proxies with Redis; else twice the same one."""
    url = request.getfixturevalue("redis_server").url if request.param == "redis" else None

    @asynccontextmanager
    async def made(
        lease_ms: int = 60_000, **changed: float
    ) -> AsyncIterator[tuple[StreamStore, StreamStore]]:
        limits = replace(LIMITS, **changed)
        if url is None:
            one = MemoryStreams(limits)
            yield one, one
            return
        async with two_stores(url, limits, lease_ms) as both:
            yield both

    return made


@pytest.fixture
def pair(stores: Stores) -> Pair:
    """pair(**limits) -> the relays of such stores."""

    @asynccontextmanager
    async def made(**changed: float) -> AsyncIterator[tuple[Relay, Relay]]:
        limits = replace(LIMITS, **changed)
        async with stores(lease_ms=400, **changed) as (near, far), relay_of(near, limits) as one:
            if near is far:
                yield one, one
                return
            async with relay_of(far, limits) as other:
                yield one, other

    return made


def relay_of(store: StreamStore, limits: AnswerLimits = LIMITS) -> Relay:
    return Relay(store, limits, IdempotencyMetrics(CollectorRegistry()))


async def until(condition: Callable[[], object]) -> None:
    while not condition():  # noqa: ASYNC110  (there is no event)
        await asyncio.sleep(0.005)
