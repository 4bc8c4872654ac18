"""Requests with one key share a generation, over every kind of records."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest

from proxy.state.answer import JoinRefused, Outcome, Reason
from proxy.state.redis_answers import RedisRecords
from proxy.state.redis_connection import RedisConnection
from proxy.state.relay import RunningAnswer
from tests.fixtures.redis_server import RedisServer, needs_redis
from tests.unit.state.answering import (
    HEAD,
    Generation,
    ask,
    asked,
    event,
    read,
    settled,
    until,
    whole,
)
from tests.unit.state.conftest import LIMITS, Pair, relay_of

pytestmark = pytest.mark.anyio


async def test_both_read_the_running_answer_from_its_beginning(pair: Pair):
    generation = Generation()
    async with pair() as (one, other):
        first = await one.open(asked(), generation)
        generation.step(2)
        second = await other.open(asked(), generation)
        assert (first.outcome, second.outcome) == (Outcome.GENERATED, Outcome.JOINED)
        reads = [asyncio.create_task(read(each)) for each in (first, second)]
        generation.step(3)
        assert await asyncio.gather(*reads) == [whole(), whole()]
        assert generation.runs == 1


@pytest.mark.parametrize("finished", [False, True])
async def test_another_body_is_refused_by_both(pair: Pair, finished: bool):
    generation = Generation()
    async with pair() as (one, other):
        first = await one.open(asked(), generation)
        await first.head()
        if finished:
            generation.step(5)
            await read(first)
            await settled(one)
        for relay in (one, other):
            with pytest.raises(JoinRefused) as refused:
                await read(await relay.open(asked(body=b"other"), generation))
            assert refused.value.reason is Reason.OTHER_BODY
        await first.aclose()
        assert generation.runs == 1


@pytest.mark.parametrize("after", range(6))
@pytest.mark.parametrize("finished", [False, True])
async def test_an_answer_continues_after_any_event(pair: Pair, after: int, finished: bool):
    generation = Generation()
    async with pair() as (one, other):
        first = await one.open(asked(), generation)
        generation.step(5 if finished else after)
        async with aclosing(first.parts()) as parts:
            had = b""
            while had != whole(5 if finished else after):
                had += await anext(parts)
        if finished:
            await read(first)
            await settled(one)
        rest = asyncio.create_task(ask(other, generation, asked(after=after)))
        generation.step(5)
        assert await rest == whole(5, after)
        await first.aclose()


async def test_a_stream_that_nobody_has_is_not_begun_for_its_rest(pair: Pair):
    generation = Generation()
    generation.step(5)
    async with pair() as (one, other):
        with pytest.raises(JoinRefused) as refused:
            await ask(other, generation, asked(after=3))
        assert refused.value.reason is Reason.NOT_KEPT
        assert generation.runs == 0
        assert await ask(one, generation) == whole()


async def test_a_reader_of_the_other_process_keeps_the_generation_running(pair: Pair):
    generation = Generation()
    async with pair(resume_grace_s=1) as (one, other):
        first = await one.open(asked(), generation)
        generation.step(1)
        second = asyncio.create_task(ask(other, generation))
        await until(lambda: one._running[asked().id].readers == 2)
        await first.aclose()
        await asyncio.sleep(1.5)
        assert not generation.was_abandoned
        generation.step(4)
        assert await second == whole()


async def test_without_readers_it_ends_after_the_grace_and_is_generated_anew(pair: Pair):
    generation = Generation()
    async with pair(resume_grace_s=0, grace_s=0) as (one, other):
        first = await one.open(asked(), generation)
        generation.step(1)
        async with aclosing(first.parts()) as parts:
            await anext(parts)
        await first.aclose()
        await until(lambda: generation.was_abandoned)
        await settled(one)
        generation.step(5)
        assert await ask(other, generation) == whole()
        assert generation.runs == 2
        await settled(other)
        assert one.budget.bytes == other.budget.bytes == 0


async def test_an_answer_that_was_finished_while_it_was_abandoned_is_joined(pair: Pair):
    async def finished_late(running: RunningAnswer) -> None:
        running.begin(HEAD)
        running.abandoned.set()
        await running.append(event(1))
        running.complete()

    async with pair() as (one, _):
        request = asked(is_private=True)  # it stays in memory for those who come back
        assert await read(await one.open(request, finished_late)) == whole(1)
        answer = await one.open(request, finished_late)
        assert answer.outcome is Outcome.JOINED
        assert await read(answer) == whole(1)


@needs_redis
async def test_nothing_of_a_private_answer_is_published(server: RedisServer):
    """Not even while it runs, into the append-only file of another machine."""

    from redis import asyncio as client

    generation, request = Generation(), asked(is_private=True)
    connections = [RedisConnection(server.url, timeout_s=5) for _ in range(2)]
    relays = [relay_of(RedisRecords(each, LIMITS)) for each in connections]
    async with (
        connections[0],
        connections[1],
        relays[0] as one,
        relays[1] as other,
        client.Redis.from_url(server.url) as seen,
    ):
        first = await one.open(request, generation)
        generation.step(3)
        parts = first.parts()
        await anext(parts)
        joined = await other.open(request, generation)
        with pytest.raises(JoinRefused) as refused:
            await joined.head()
        assert refused.value.reason is Reason.PRIVATE
        generation.step(2)
        assert b"".join([part async for part in parts]).endswith(event(5))
        assert await read(await one.open(request, generation)) == whole()
        streams = [name async for name in seen.scan_iter() if b"}:p:" in name]
        written = [await seen.xrange(name) for name in streams]
        assert b"data" not in str(written).encode()
        assert streams
        await first.aclose()
        assert generation.runs == 1
