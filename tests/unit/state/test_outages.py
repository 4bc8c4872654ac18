"""Owners that die, and records that cannot be used."""

from __future__ import annotations

import asyncio

import pytest

from proxy.state.answer import Outcome, RecordsUnavailable
from proxy.state.redis_answers import RedisRecords
from proxy.state.redis_connection import ANSWERS, RedisConnection
from tests.fixtures.redis_server import RedisServer, needs_redis
from tests.unit.state.answering import (
    Generation,
    ask,
    asked,
    read,
    settled,
    until,
    whole,
)
from tests.unit.state.conftest import LIMITS, relay_of

pytestmark = pytest.mark.anyio


@needs_redis
async def test_while_redis_is_away_requests_learn_it_and_running_answers_go_on(server: RedisServer):
    connection = RedisConnection(server.url, timeout_s=1, beat_s=0.05)
    records = RedisRecords(connection, LIMITS, lease_ms=400)
    async with connection, relay_of(records) as one:
        generation = Generation()
        answer = await one.open(asked(), generation)
        server.kill()
        with pytest.raises(RecordsUnavailable):
            await one.open(asked("other"), generation)
        generation.step(5)
        assert await read(answer) == whole()
        await settled(one)
        server.start()
        await until(lambda: not connection.is_away)
        generation.step(5)
        assert await ask(one, generation, asked("other")) == whole()
        assert generation.runs == 2


@needs_redis
async def test_the_claim_of_a_host_that_is_gone_ends_with_its_lease(server: RedisServer):
    connection = RedisConnection(server.url, timeout_s=5)
    records = RedisRecords(connection, LIMITS, lease_ms=300)
    async with connection, relay_of(records) as one:
        assert await records.claim(asked(), "of another proxy") is None
        generation = Generation()
        generation.step(5)
        answer = await one.open(asked(), generation)
        assert answer.outcome is Outcome.JOINED
        await answer.aclose()
        await asyncio.sleep(0.4)
        assert await ask(one, generation) == whole()


@needs_redis
async def test_a_broken_record_concerns_its_key_only(server: RedisServer):
    connection = RedisConnection(server.url, timeout_s=5)
    records = RedisRecords(connection, LIMITS)
    async with connection, relay_of(records) as one:
        generation = Generation()
        generation.step(5)
        await connection.answers.set(f"{ANSWERS}r:{asked().id.hex()}", "of another program")
        with pytest.raises(RecordsUnavailable):
            await one.open(asked(), generation)
        assert not connection.is_away
        assert await ask(one, generation, asked("other")) == whole()
