"""Only beats decide whether Redis is away: not a late command, nor a late event loop of ours."""

from __future__ import annotations

import asyncio
import time

import pytest

from proxy.state.redis_connection import (
    ANSWER_CONNECTIONS,
    FAILURES,
    TENANT_CONNECTIONS,
    RedisConnection,
)
from tests.fixtures.redis_server import RedisServer, needs_redis

pytestmark = [needs_redis, pytest.mark.anyio]


async def forever(connection: RedisConnection, tenant: bytes) -> None:
    """A command that Redis does not answer, while it answers others."""
    await connection.call(tenant, connection.answers.blpop, "nothing", 0)


async def test_a_command_that_is_not_answered_fails_alone(redis_server: RedisServer):
    async with RedisConnection(redis_server.url, timeout_s=0.5, beat_s=0.1) as connection:
        late = asyncio.create_task(forever(connection, b"t"))
        others = 0
        while not late.done():
            assert await connection.call(b"t", connection.answers.ping)
            assert await connection.answered(connection.meters.ping())
            assert not connection.is_away
            others += 1
        assert isinstance(late.exception(), FAILURES)
        await connection._try_beat()
        assert others
        assert not connection.is_away


async def test_our_own_late_loop_is_no_silence_of_redis(redis_server: RedisServer):
    async with RedisConnection(redis_server.url, timeout_s=0.3, beat_s=0.05) as connection:
        await connection.answered(connection.meters.ping())
        for _ in range(3):
            asked = [
                asyncio.create_task(connection.answered(connection.meters.ping())),
                asyncio.create_task(connection.call(b"t", connection.answers.ping)),
                asyncio.create_task(connection._try_beat()),
            ]
            await asyncio.sleep(0)
            time.sleep(0.5)  # noqa: ASYNC251
            await asyncio.gather(*asked)
            assert not connection.is_away


async def test_a_tenant_waits_for_its_share_and_no_other_waits_for_it(redis_server: RedisServer):
    async with RedisConnection(redis_server.url, timeout_s=60) as connection:
        greedy = [
            asyncio.create_task(forever(connection, b"greedy"))
            for _ in range(3 * ANSWER_CONNECTIONS)
        ]
        while await blocked(connection) < TENANT_CONNECTIONS:  # noqa: ASYNC110  (Redis says it)
            await asyncio.sleep(0.01)
        for number in range(20):
            assert await connection.call(b"%d" % number, connection.answers.ping)
        assert await blocked(connection) == TENANT_CONNECTIONS
        assert not any(task.done() for task in greedy)
        for _ in greedy:  # all are served, one after the other
            await connection.meters.rpush("nothing", "x")
        await asyncio.gather(*greedy)


async def blocked(connection: RedisConnection) -> int:
    return (await connection.meters.info("clients"))["blocked_clients"]


async def test_silence_is_found_soon_after_a_command_fails(server: RedisServer):
    async with RedisConnection(server.url, timeout_s=0.05, beat_s=3600) as connection:
        with server.stopped():
            with pytest.raises(FAILURES):
                await connection.answered(connection.meters.ping())
            while not connection.is_away:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            with pytest.raises(FAILURES):
                await connection.call(b"t", connection.answers.ping)
