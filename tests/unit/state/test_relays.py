"""Requests with one key share a generation, and owners die."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from typing import Any

import pytest

from proxy.state.answer import (
    Head,
    JoinRefused,
    KeyedRequest,
    Notice,
    OpenAnswer,
    Outcome,
    Reason,
)
from proxy.state.relay import Relay, RunningAnswer
from proxy.state.streams import Claim, StreamsUnavailable
from tests.fixtures.redis_server import RedisServer, needs_redis
from tests.unit.state.conftest import Pair, relay_of, two_stores, until

pytestmark = pytest.mark.anyio
HEAD = Head(
    status=200,
    headers=(("content-type", "text/event-stream; charset=utf-8"),),
    request_id="req_1",
    route="/x",
)


def event(number: int) -> bytes:
    return b'id: %d\ndata: {"n":%d}\n\n' % (number, number)


def asked(key: str = "k", *, tenant: str = "t", body: bytes = b"{}", **fields: Any) -> KeyedRequest:
    return KeyedRequest(
        id=hashlib.sha256(f"{tenant} {key}".encode()).digest(),
        tenant=hashlib.sha256(tenant.encode()).digest(),
        body=hashlib.sha256(body).digest(),
        **fields,
    )


class Generation:
    """Gives so many events, each when `step` lets it."""

    def __init__(self, events: int = 5, head: Head = HEAD) -> None:
        self.runs = 0
        self.was_abandoned = False
        self._events = events
        self._head = head
        self._steps = asyncio.Semaphore(0)

    def step(self, count: int = 1) -> None:
        for _ in range(count):
            self._steps.release()

    async def __call__(self, running: RunningAnswer) -> None:
        self.runs += 1
        abandoned = asyncio.create_task(running.abandoned.wait())
        writing = asyncio.create_task(self._write(running))
        await asyncio.wait((abandoned, writing), return_when=asyncio.FIRST_COMPLETED)
        self.was_abandoned = abandoned.done()
        for task in (abandoned, writing):
            task.cancel()
        await asyncio.wait((abandoned, writing))

    async def _write(self, running: RunningAnswer) -> None:
        running.begin(self._head)
        for number in range(1, self._events + 1):
            await self._steps.acquire()
            await running.append(event(number))
        running.complete()


def whole(events: int = 5, after: int = 0) -> bytes:
    return b"".join(event(number) for number in range(after + 1, events + 1))


async def read(answer: OpenAnswer) -> bytes:
    async with aclosing(answer):
        await answer.head()
        return await rest_of(answer.parts())


async def rest_of(parts: AsyncIterator[Sequence[bytes] | Notice]) -> bytes:
    return b"".join([b"".join(each) async for each in parts if not isinstance(each, Notice)])


async def ask(relay: Relay, generation: Generation, request: KeyedRequest | None = None) -> bytes:
    return await read(await relay.open(request or asked(), generation))


async def settled(relay: Relay) -> None:
    """Until what has finished is kept, or released."""
    await until(lambda: not any(not each.task.done() for each in relay._running.values()))
    await until(lambda: not relay._releases and len(relay._tasks) == 1)


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
                had += b"".join(await anext(parts))
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
    async with (
        two_stores(server.url) as (near, far),
        relay_of(near) as one,
        relay_of(far) as other,
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
        assert (await rest_of(parts)).endswith(event(5))
        assert await read(await one.open(request, generation)) == whole()
        streams = [name async for name in seen.scan_iter() if b"}:p:" in name]
        written = [await seen.xrange(name) for name in streams]
        assert b"data" not in str(written).encode()
        assert streams
        await first.aclose()
        assert generation.runs == 1


@needs_redis
async def test_while_redis_is_away_requests_learn_it_and_running_answers_go_on(server: RedisServer):
    async with (
        two_stores(server.url, lease_ms=400, beat_s=0.05) as (near, _),
        relay_of(near) as one,
    ):
        generation = Generation()
        answer = await one.open(asked(), generation)
        server.kill()
        with pytest.raises(StreamsUnavailable):
            await one.open(asked("other"), generation)
        generation.step(5)
        assert await read(answer) == whole()
        await settled(one)
        server.start()
        await until(lambda: not near._redis.is_away)
        generation.step(5)
        assert await ask(one, generation, asked("other")) == whole()
        assert generation.runs == 2


@needs_redis
async def test_the_claim_of_a_host_that_is_gone_ends_with_its_lease(server: RedisServer):
    async with two_stores(server.url, lease_ms=300) as (near, far), relay_of(near) as one:
        assert await far.claim(Claim(asked(), 0), {"body": asked().body}) is None
        generation = Generation()
        generation.step(5)
        answer = await one.open(asked(), generation)
        assert answer.outcome is Outcome.JOINED
        await answer.aclose()
        await asyncio.sleep(0.4)
        assert await ask(one, generation) == whole()


@needs_redis
async def test_a_broken_record_concerns_its_key_only(server: RedisServer):
    async with two_stores(server.url) as (near, _), relay_of(near) as one:
        generation = Generation()
        generation.step(5)
        await near._client.set(near._record(asked()), "of another program")
        with pytest.raises(StreamsUnavailable):
            await one.open(asked(), generation)
        assert not near._redis.is_away
        assert await ask(one, generation, asked("other")) == whole()


async def test_answers_of_any_size_are_replayed_in_pages(pair: Pair):
    generation = Generation(6_000)
    generation.step(6_000)
    async with pair() as (one, other):
        assert await ask(one, generation) == whole(6_000)
        await settled(one)
        assert await ask(other, generation) == whole(6_000)
        for after in (1, 2_999, 5_999, 6_000):
            assert await ask(other, generation, asked(after=after)) == whole(6_000, after)
