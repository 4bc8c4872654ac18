"""Kept responses: of one proxy in memory, of several in Redis."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace

import pytest

from proxy.domain.output import Alternative, FinishReason, TokenDelta, TokenLogProb
from proxy.state.memory_responses import MOST_LOG_BYTES, MemoryResponses
from proxy.state.redis_connection import RedisConnection
from proxy.state.redis_responses import RUNNING, RedisResponses
from proxy.state.responses import (
    EventsNotKept,
    KeptResponse,
    ResponseKey,
    ResponseLimits,
    ResponseStore,
    ResponsesUnavailable,
    deltas_as_json,
    deltas_of_json,
)
from tests.fixtures.redis_server import RedisServer

pytestmark = pytest.mark.anyio
LIMITS = ResponseLimits(keep_s=3600, bytes=1_000_000)
KEPT = KeptResponse(response=b'{"status":"queued"}', input=b"[]")
DONE = replace(KEPT, response=b'{"status":"completed"}')
DELTAS = [
    (0, TokenDelta((b"\xff", b"a"), prompt_tokens=3, token_ids=(1, 2))),
    (0, TokenDelta((b"b",), log_probs=(TokenLogProb(-1.5, (Alternative(b"\xf0", -2.0, 7),), 5),))),
    (1, TokenDelta((), finish=FinishReason.STOP)),
]
Pair = Callable[..., AbstractAsyncContextManager[tuple[ResponseStore, ResponseStore]]]


def key(name: str, tenant: str = "t") -> ResponseKey:
    return ResponseKey(id=name.encode(), tenant=tenant.encode())


@pytest.fixture(params=["memory", "redis"])
def pair(request: pytest.FixtureRequest) -> Pair:
    """pair(limits) -> the stores of two proxies with Redis; else twice the same one."""
    url = request.getfixturevalue("redis_server").url if request.param == "redis" else None

    @asynccontextmanager
    async def made(
        limits: ResponseLimits = LIMITS, lease_ms: int = 10_000
    ) -> AsyncIterator[tuple[ResponseStore, ResponseStore]]:
        if url is None:
            store = MemoryResponses(limits)
            yield store, store
            return
        async with (
            RedisConnection(url, timeout_s=5) as one,
            RedisConnection(url, timeout_s=5) as other,
        ):
            await one.answers.flushall()
            yield (
                RedisResponses(one, limits, lease_ms=lease_ms),
                RedisResponses(other, limits, lease_ms=lease_ms),
            )

    return made


@pytest.fixture
def redis_pair(redis_server: RedisServer) -> Iterator[Pair]:
    @asynccontextmanager
    async def made(lease_ms: int) -> AsyncIterator[tuple[ResponseStore, ResponseStore]]:
        async with RedisConnection(redis_server.url, timeout_s=5) as one:
            await one.answers.flushall()
            async with RedisConnection(redis_server.url, timeout_s=5) as other:
                yield (
                    RedisResponses(one, LIMITS, lease_ms=lease_ms),
                    RedisResponses(other, LIMITS, lease_ms=lease_ms),
                )

    return made


async def until(holds: Callable[[], bool]) -> None:
    while not holds():  # noqa: ASYNC110  (there is no event)
        await asyncio.sleep(0.01)


async def kept(store: ResponseStore, name: str, tenant: str = "t") -> KeptResponse | None:
    one = key(name, tenant)
    response, given = await store.response(one), await store.input(one)
    if response is None or given is None:
        assert response is given
        return None
    return KeptResponse(response=response, input=given)


async def read(store: ResponseStore, one: ResponseKey, after: int = 0) -> bytes:
    return b"".join([part async for part in store.events(one, after)])


async def test_what_is_kept_can_be_read_and_deleted(pair):
    async with pair() as (one, other):
        assert await kept(other, "a") is None
        await one.put(key("a"), KEPT)
        await one.put(key("a"), DONE)
        assert await kept(other, "a") == DONE
        assert await other.remove_expired() == DONE.size_bytes
        assert [await other.delete(key("a")) for _ in range(2)] == [True, False]
        assert await kept(one, "a") is None


async def test_no_tenant_pushes_out_what_another_keeps(pair):
    async with pair(ResponseLimits(keep_s=3600, bytes=20_000)) as (one, other):
        await one.put(key("mine", "small"), KEPT)
        large = replace(KEPT, input=b"x" * 5_000)
        for number in range(8):
            await one.put(key(f"{number}", "large"), large)
        found = [await kept(other, f"{number}", "large") for number in range(8)]
        assert [each is not None for each in found] == [False] * 5 + [True] * 3
        assert await kept(other, "mine", "small") == KEPT


async def test_events_are_read_from_any_number_on_while_they_come(pair):
    async with pair() as (one, other):
        claim = await one.begin(key("a"), KEPT, b"job")
        early = asyncio.create_task(read(other, key("a")))
        assert await one.append(claim, [b"e0\n\n", b"e1\n\n", b"e2\n\n"], DELTAS[:1])
        assert await one.append(claim, [], DELTAS[1:])
        late = asyncio.create_task(read(other, key("a"), after=2))
        assert await one.append(claim, [b"e3\n\n"], ())
        assert await kept(other, "a") == KEPT
        await one.finish(claim, DONE)
        assert await early == b"e0\n\ne1\n\ne2\n\ne3\n\n"
        assert await late == b"e2\n\ne3\n\n"
        assert await read(other, key("a"), after=4) == b""
        assert await kept(other, "a") == DONE


async def test_there_are_no_events_of_a_response_without_any(pair):
    async with pair() as (one, _):
        await one.put(key("a"), KEPT)
        for name in ("a", "b"):
            with pytest.raises(EventsNotKept):
                await read(one, key(name))


async def test_a_response_that_is_deleted_while_it_is_generated_ends(pair):
    async with pair() as (one, other):
        claim = await one.begin(key("a"), KEPT, b"job")
        assert await other.delete(key("a"))
        assert await one.renew([claim]) == [claim]
        assert not await one.append(claim, [b"e0\n\n"], ())
        await one.finish(claim, DONE)
        assert await kept(other, "a") is None


async def test_the_oldest_events_in_memory_make_room():
    store = MemoryResponses(LIMITS)
    claim = await store.begin(key("a"), KEPT, b"job")
    for _ in range(3):
        await store.append(claim, [b"x" * (MOST_LOG_BYTES // 2)], ())
    with pytest.raises(EventsNotKept):
        await read(store, key("a"))


async def test_another_process_takes_what_its_owner_has_lost(redis_pair):
    async with redis_pair(lease_ms=60_000) as (one, other):
        claim = await one.begin(key("a"), KEPT, b"job")
        await one.append(claim, [b"e0\n\n", b"e1\n\n"], DELTAS)
        assert await other.lost() is None
        await one.release([claim])
        found = await other.lost()
        assert (found.job, found.input, found.events, found.takes) == (b"job", KEPT.input, 2, 0)
        assert list(found.deltas) == DELTAS
        assert found.claim.key == key("a")
        assert await one.renew([claim]) == [claim]
        assert not await one.append(claim, [b"late\n\n"], ())
        await one.finish(claim, KEPT)  # which changes nothing
        assert await other.append(found.claim, [b"e2\n\n"], ())
        await other.finish(found.claim, DONE)
        assert await read(one, key("a")) == b"e0\n\ne1\n\ne2\n\n"
        assert await one.lost() is None


async def test_a_cancellation_reaches_the_owner_with_its_next_event(redis_pair):
    async with redis_pair(lease_ms=60_000) as (one, other):
        claim = await one.begin(key("a"), KEPT, b"job")
        assert await one.renew([claim]) == []
        await other.cancel(key("a"))
        assert not await one.append(claim, [b"e0\n\n"], ())
        assert await one.renew([claim]) == [claim]
        await one.finish(claim, DONE)
        assert await kept(other, "a") == DONE
        await other.cancel(key("a"))
        assert await kept(other, "a") == DONE


async def test_readers_share_one_connection_and_one_command(redis_pair):
    """Counted by Redis: neither commands nor connections grow with the readers."""
    responses, readers, events_ = 4, 60, 12
    async with redis_pair(lease_ms=60_000) as (one, other):
        claims = [await one.begin(key(f"{number}"), KEPT, b"job") for number in range(responses)]
        reading = [
            asyncio.create_task(read(other, claim.key)) for claim in claims for _ in range(readers)
        ]
        redis = other._redis.answers

        async def count() -> int:
            return (await redis.info("commandstats"))["cmdstat_xread"]["calls"]

        tails = other._streams._tails
        await until(lambda: sum(tail.readers for tail in tails.values()) == len(reading))
        before = await count()
        expected = b""
        for number in range(events_):
            expected += b"e%d\n\n" % number
            for claim in claims:
                assert await one.append(claim, [b"e%d\n\n" % number], ())
            await asyncio.sleep(0.05)  # so that no reader is slow
        for claim in claims:
            await one.finish(claim, DONE)
        assert set(await asyncio.gather(*reading)) == {expected}
        assert await count() - before < 5 * events_ * responses
        assert len(await redis.client_list()) < 2 * (16 + 16 + 4)


async def test_the_owner_and_readers_wait_for_a_redis_that_is_late(server):
    """Whatever of it is executed later, each event is written once, and nobody takes the claim."""
    async with (
        RedisConnection(server.url, timeout_s=0.1, beat_s=0.1) as near,
        RedisConnection(server.url, timeout_s=0.1, beat_s=0.1) as far,
    ):
        one, other = (RedisResponses(each, LIMITS, lease_ms=1500) for each in (near, far))
        claim = await one.begin(key("a"), KEPT, b"job")
        reading = asyncio.create_task(read(other, key("a")))

        async def write() -> None:
            for number in range(60):
                assert await one.append(claim, [b"e%d\n\n" % number], ())
                await asyncio.sleep(0.01)

        writing = asyncio.create_task(write())
        for _ in range(2):
            await asyncio.sleep(0.1)
            with server.stopped():
                await until(lambda: near.is_away and far.is_away)
                late = asyncio.create_task(other.response(key("a")))
                assert await one.renew([claim]) == []
                await asyncio.sleep(1.6)  # longer than the lease
            await until(lambda: not (near.is_away or far.is_away))
            assert await late == KEPT.response
            assert await other.lost() is None
            assert await one.renew([claim]) == []
        await writing
        await one.finish(claim, DONE)
        assert await reading == b"".join(b"e%d\n\n" % number for number in range(60))
        assert await kept(other, "a") == DONE


async def test_only_an_expired_lease_counts_as_a_lost_process(redis_pair):
    async with redis_pair(lease_ms=60_000) as (one, other):
        claim = await one.begin(key("a"), KEPT, b"job")
        takes = []
        for ends in (0, 1, 0, 0, 1):
            if ends:
                await one._redis.answers.zadd(RUNNING, {key("a").id.hex(): ends})
            else:
                await one.release([claim])
            found = await other.lost()
            claim, takes = found.claim, [*takes, found.takes]
        assert takes == [0, 1, 1, 1, 2]


async def test_without_redis_nothing_can_be_read(server):
    async with RedisConnection(server.url, timeout_s=5, patience_s=0.1) as redis:
        store = RedisResponses(redis, LIMITS)
        await store.put(key("a"), KEPT)
        server.kill()
        for _ in range(2):
            with pytest.raises(ResponsesUnavailable):
                await kept(store, "a")


def test_deltas_are_written_without_loss():
    assert deltas_of_json(deltas_as_json(DELTAS)) == DELTAS
    assert deltas_of_json(deltas_as_json([])) == []
