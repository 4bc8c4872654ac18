"""Kept streams: of one proxy in memory, of several in Redis."""

from __future__ import annotations

import asyncio
import math
from contextlib import aclosing

import pytest

from proxy.domain.output import Alternative, FinishReason, TokenDelta, TokenLogProb
from proxy.state.memory_streams import MemoryStreams
from proxy.state.redis_streams import deltas_as_json, deltas_of_json
from proxy.state.streams import (
    Claim,
    Kind,
    StreamKey,
    StreamLost,
    StreamReader,
    StreamStore,
    StreamsUnavailable,
)
from tests.fixtures.redis_server import RedisServer, needs_redis
from tests.unit.state.conftest import LIMITS, Stores, two_stores, until

pytestmark = pytest.mark.anyio
JOB = {"head": b"queued", "input": b"[]", "job": b"job"}
DONE = {"head": b"completed"}
DELTAS = [
    (0, TokenDelta((b"\xff", b"a"), prompt_tokens=3, token_ids=(1, 2))),
    (0, TokenDelta((b"b",), log_probs=(TokenLogProb(-1.5, (Alternative(b"\xf0", -2.0, 7),), 5),))),
    (1, TokenDelta((), finish=FinishReason.STOP)),
]


def key(name: str, tenant: str = "t") -> StreamKey:
    return StreamKey(id=name.encode(), tenant=tenant.encode())


async def claimed(store: StreamStore, name: str = "a", tenant: str = "t", **fields: bytes) -> Claim:
    claim = Claim(key(name, tenant), math.inf)
    assert await store.claim(claim, fields or JOB) is None
    return claim


async def put(store: StreamStore, name: str, tenant: str = "t", input: bytes = b"[]") -> None:
    await store.keep(await claimed(store, name, tenant, head=b"done", input=input), {})


async def write(store: StreamStore, claim: Claim, *parts: bytes) -> bool:
    return await store.append(claim, Kind.PARTS, parts)


async def read(store: StreamStore, name: str = "a", after: int = 0) -> bytes:
    if (found := await store.find(key(name))) is None:
        raise StreamLost
    async with aclosing(StreamReader(found, after)) as reader:
        return b"".join([b"".join(parts) async for parts in reader.parts()])


async def test_what_is_kept_can_be_read_and_deleted(stores: Stores):
    async with stores() as (one, other):
        assert await other.field(key("a"), "head") is None
        await put(one, "a")
        assert await other.field(key("a"), "head") == b"done"
        assert await other.field(key("a"), "input") == b"[]"
        assert await other.stored_bytes() == 1_006
        assert [await other.delete(key("a")) for _ in range(2)] == [True, False]
        assert await one.field(key("a"), "head") is None
        assert await one.stored_bytes() == 0


async def test_a_stream_is_claimed_once_and_again_after_its_release(stores: Stores):
    async with stores() as (one, other):
        first = await claimed(one, body=b"b")
        assert await one.renew(first) == (True, False)
        await one.release(first)
        again = await claimed(other, body=b"c")
        assert await one.renew(first) == (False, False)
        assert not await write(one, first, b"late")
        await one.keep(first, {})  # which changes nothing
        await one.release(first)
        assert await write(other, again, b"own")
        await other.keep(again, {})
        found = await one.claim(Claim(key("a"), 0), {"body": b"d"})
        assert found is not None
        assert (found.body, found.parts, found.is_kept, found.has_end) == (b"c", 1, True, True)


@pytest.mark.parametrize("bound", [{"kept_bytes": 20_000}, {"tenant_streams": 3}])
async def test_no_tenant_pushes_out_what_another_keeps(stores: Stores, bound: dict[str, int]):
    async with stores(**bound) as (one, other):
        await put(one, "mine", "small")
        for number in range(8):
            await put(one, f"{number}", "large", b"x" * 5_000)
            await asyncio.sleep(0.002)  # so that their ages differ
        kept = [await other.find(key(f"{number}", "large")) for number in range(8)]
        assert [each is not None for each in kept] == [False] * 5 + [True] * 3
        assert await other.find(key("mine", "small"))
        assert 15_000 < await other.stored_bytes() <= 20_000


async def test_what_has_expired_gives_its_memory_back():
    now = [0.0]
    store = MemoryStreams(LIMITS, clock=lambda: now[0])
    for number in range(10):
        now[0] += 1
        await put(store, f"{number}", f"{number % 3}")
    now[0] = LIMITS.keep_s + 5
    assert await store.stored_bytes() == 5 * 1_006
    now[0] += 5
    assert await store.stored_bytes() == 0
    assert (store._kept._kept, store._kept._tenants, store._running) == ({}, {}, {})


async def test_parts_are_read_from_any_number_on_while_they_come(stores: Stores):
    async with stores() as (one, other):
        claim = await claimed(one)
        early = asyncio.create_task(read(other))
        assert await one.append(claim, Kind.PARTS, [b"e0", b"e1", b"e2"], DELTAS[:1])
        assert await one.append(claim, Kind.PARTS, [], DELTAS[1:])
        late = asyncio.create_task(read(other, after=2))
        assert await write(one, claim, b"e3")
        assert await other.field(key("a"), "head") == b"queued"
        await one.keep(claim, DONE)
        assert (await early, await late) == (b"e0e1e2e3", b"e2e3")
        for after in range(6):
            assert await read(other, after=after) == b"e0e1e2e3"[2 * after :]
        assert await other.field(key("a"), "head") == b"completed"


async def test_a_stream_without_parts_has_none(stores: Stores):
    async with stores() as (one, _):
        await put(one, "a")
        for name in ("a", "b"):
            with pytest.raises(StreamLost):
                await read(one, name)


async def test_one_that_is_deleted_or_cancelled_while_it_is_written_ends(stores: Stores):
    async with stores() as (one, other):
        for name, end in (("a", other.delete), ("b", other.cancel)):
            claim = await claimed(one, name)
            await end(key(name))
            assert await one.renew(claim) == (False, False)
            assert not await write(one, claim, b"e0")
            await one.keep(claim, DONE)
            await other.cancel(key(name))
        assert await other.find(key("a")) is None
        assert await other.field(key("b"), "head") == b"completed"


async def test_the_oldest_parts_make_room(stores: Stores):
    async with stores(stream_bytes=1_000) as (one, other):
        claim = await claimed(one)
        claim.most_entries = 2
        for number in range(9):
            assert await write(one, claim, b"%d" % number * 400)
        await one.keep(claim, DONE)
        assert await read(other, after=7) == b"7" * 400 + b"8" * 400
        for after in (0, 6):
            with pytest.raises(StreamLost):
                await read(other, after=after)


@needs_redis
async def test_another_process_takes_what_its_owner_has_lost(redis_server: RedisServer):
    async with two_stores(redis_server.url) as (one, other):
        claim = await claimed(one)
        await one.append(claim, Kind.PARTS, [b"e0", b"e1"], DELTAS)
        assert await other.take() is None
        await one.release(claim)
        lost = await other.take()
        assert (lost.job, lost.input, lost.claim.parts, lost.takes) == (b"job", b"[]", 2, 0)
        assert (list(lost.deltas), lost.claim.key) == (DELTAS, key("a"))
        assert not (await one.renew(claim))[0]
        assert not await write(one, claim, b"late")
        await one.keep(claim, JOB)  # which changes nothing
        await one.release(claim)
        assert await other.take() is None
        assert await write(other, lost.claim, b"e2")
        await other.keep(lost.claim, DONE)
        assert await read(one) == b"e0e1e2"
        assert await one.take() is None


@needs_redis
async def test_only_an_expired_lease_counts_as_a_lost_process(redis_server: RedisServer):
    async with two_stores(redis_server.url) as (one, other):
        claim = await claimed(one)
        takes = []
        for ends in (0, 1, 0, 0, 1):
            if ends:
                await one._client.zadd(f"{one._prefix}running", {key("a").id.hex(): ends})
            else:
                await one.release(claim)
            lost = await other.take()
            claim, takes = lost.claim, [*takes, lost.takes]
        assert takes == [0, 1, 1, 1, 2]


@needs_redis
async def test_readers_share_one_connection_and_one_command(redis_server: RedisServer):
    """Counted by Redis: neither commands nor connections grow with the readers."""
    streams, readers, parts = 4, 60, 12
    async with two_stores(redis_server.url) as (one, other):
        claims = [await claimed(one, f"{number}") for number in range(streams)]
        reading = [
            asyncio.create_task(read(other, f"{number}"))
            for number in range(streams)
            for _ in range(readers)
        ]

        async def count() -> int:
            return (await other._client.info("commandstats"))["cmdstat_xread"]["calls"]

        tails = other._follower._tails
        await until(lambda: sum(tail.readers for tail in tails.values()) == len(reading))
        before = await count()
        for number in range(parts):
            for claim in claims:
                assert await write(one, claim, b"e%d" % number)
            await asyncio.sleep(0.05)  # so that no reader is slow
        for claim in claims:
            await one.keep(claim, DONE)
        expected = b"".join(b"e%d" % number for number in range(parts))
        assert set(await asyncio.gather(*reading)) == {expected}
        assert await count() - before < 5 * parts * streams
        assert len(await other._client.client_list()) < 2 * (16 + 16 + 4)


@needs_redis
async def test_the_owner_and_readers_wait_for_a_redis_that_is_late(server: RedisServer):
    """Whatever of it is executed later, each part is written once, and nobody takes the claim."""
    late_redis = {"timeout_s": 0.1, "beat_s": 0.1}
    async with two_stores(server.url, lease_ms=1500, **late_redis) as (one, other):
        claim = await claimed(one)
        reading = asyncio.create_task(read(other))

        async def write_all() -> None:
            for number in range(60):
                assert await write(one, claim, b"e%d" % number)
                await asyncio.sleep(0.01)

        writing = asyncio.create_task(write_all())
        near, far = one._redis, other._redis
        for _ in range(2):
            await asyncio.sleep(0.1)
            with server.stopped():
                await until(lambda: near.is_away and far.is_away)
                late = asyncio.create_task(other.field(key("a"), "head"))
                with pytest.raises(StreamsUnavailable):
                    await one.renew(claim)
                await asyncio.sleep(1.6)  # longer than the lease
            await until(lambda: not (near.is_away or far.is_away))
            assert await late == b"queued"
            assert await other.take() is None
            assert (await one.renew(claim))[0]
        await writing
        await one.keep(claim, DONE)
        assert await reading == b"".join(b"e%d" % number for number in range(60))


@needs_redis
async def test_without_redis_nothing_can_be_read(server: RedisServer):
    async with two_stores(server.url, patience_s=0.1) as (one, _):
        await put(one, "a")
        server.kill()
        for read_it in (one.find(key("a")), one.field(key("a"), "head"), one.take()):
            with pytest.raises(StreamsUnavailable):
                await read_it


def test_deltas_are_written_without_loss():
    assert deltas_of_json(deltas_as_json(DELTAS)) == DELTAS
    assert deltas_of_json(deltas_as_json([])) == []
