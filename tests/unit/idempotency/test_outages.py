"""Owners that die, and records that cannot be used."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from prometheus_client import CollectorRegistry

from proxy.idempotency.answer import Outcome, RecordsUnavailable
from proxy.idempotency.port import Records
from proxy.idempotency.redis_records import RedisRecords
from proxy.idempotency.relay import Relay
from proxy.telemetry.idempotency_metrics import IdempotencyMetrics
from tests.fixtures.redis_server import RedisServer, needs_redis
from tests.unit.idempotency.answering import (
    Generation,
    ask,
    asked,
    read,
    settled,
    whole,
)
from tests.unit.idempotency.conftest import LIMITS, QUOTAS


def relay(records: Records) -> Relay:
    return Relay(records, LIMITS, IdempotencyMetrics(CollectorRegistry()))


@needs_redis
def test_while_redis_is_away_requests_learn_it_and_running_answers_go_on(redis: RedisServer):
    async def run() -> None:
        records = RedisRecords(redis.url, QUOTAS, answer_bytes=1_000_000, timeout_s=1, lease_ms=400)
        async with relay(records) as one:
            generation = Generation()
            answer = await one.open(asked(), generation)
            redis.kill()
            with pytest.raises(RecordsUnavailable):
                await one.open(asked("other"), generation)
            generation.step(5)
            assert await read(answer) == whole()
            await settled(one)
            redis.start()
            generation.step(5)
            assert await ask(one, generation, asked("other")) == whole()
            assert generation.runs == 2

    asyncio.run(run())


@needs_redis
def test_the_claim_of_a_host_that_is_gone_ends_with_its_lease(redis: RedisServer):
    async def run() -> None:
        options = {"answer_bytes": 1_000_000, "timeout_s": 5, "lease_ms": 300}
        gone = RedisRecords(redis.url, QUOTAS, **options)
        async with gone:
            assert await gone.claim(asked(), "old") is None
        async with relay(RedisRecords(redis.url, replace(QUOTAS), **options)) as one:
            generation = Generation()
            generation.step(5)
            answer = await one.open(asked(), generation)
            assert answer.outcome is Outcome.JOINED
            await answer.aclose()
            await asyncio.sleep(0.4)
            assert await ask(one, generation) == whole()

    asyncio.run(run())
