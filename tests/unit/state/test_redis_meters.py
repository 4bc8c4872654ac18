"""The ledger in Redis: hosts that die, a Redis that dies, and what its proxies grant meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

import pytest
from structlog.testing import capture_logs

from proxy.state.memory_meters import steady_us
from proxy.state.meters import BUCKETS, Grant, LedgerUnavailable, OutageMode, Refusal
from proxy.state.redis_connection import RedisConnection, tenant_tag
from proxy.state.redis_meters import RedisLedger
from tests.fixtures.redis_server import RedisServer, needs_redis
from tests.unit.state.test_ledgers import gauge, month, unique, window

pytestmark = [needs_redis, pytest.mark.anyio]
BEAT_S = 0.1
LEASE_S = 0.5


def ledger(server: RedisServer, mode: OutageMode = OutageMode.CLOSED, **options) -> RedisLedger:
    """Waits for Redis as long as a busy machine takes: here it dies, but never hangs."""
    given = {"timeout_s": 5.0, "beat_s": BEAT_S, "lease_s": LEASE_S, **options}
    redis = RedisConnection(server.url, **given)
    return RedisLedger(redis, mode)


async def until(holds: Callable[[], bool | Awaitable[bool]], seconds: float = 10) -> None:
    end = asyncio.get_running_loop().time() + seconds
    while not (found if isinstance(found := holds(), bool) else await found):
        assert asyncio.get_running_loop().time() < end
        await asyncio.sleep(0.02)


async def test_a_host_that_dies_gives_back_what_it_held(redis_server: RedisServer):
    tenant = unique("t")
    meters = [
        gauge(f"{tenant}.g", 2),
        month(f"{tenant}.m", 100, steady_us() + 10**12),
        window(f"{tenant}.w", 10),
    ]

    dead = await ledger(redis_server).__aenter__()
    async with ledger(redis_server) as alive:
        assert isinstance(await dead.reserve(meters, [1, 60, 1]), Grant)
        kept = await alive.reserve(meters, [1, 30, 1])
        assert isinstance(kept, Grant)
        assert isinstance(await alive.reserve(meters, [1, 5, 1]), Refusal)
        await dead.drop()  # as a host does that is switched off

        async def has_room() -> bool:
            return isinstance(await alive.reserve(meters, [1, 70, 1]), Grant)

        await until(has_room)
        look = (await alive.reserve(meters, [0, 0, 0])).look
        assert [look(at)[0] for at in range(3)] == [0, 0, 7]  # requests were made
        await dead.redis.close()


async def test_a_call_that_is_cancelled_holds_nothing(redis_server: RedisServer):
    meters = [gauge(f"{unique('t')}.g", 3)]

    async with ledger(redis_server) as one:
        for turns in range(60):
            call = asyncio.ensure_future(one.reserve(meters, [1]))
            for _ in range(turns % 20):
                await asyncio.sleep(0)
            call.cancel()
            result = (await asyncio.gather(call, return_exceptions=True))[0]
            if isinstance(result, Grant):
                one.settle(result, [0])

        async def is_free() -> bool:
            await one.flush()
            return (await one.reserve(meters, [0])).look(0)[0] == 3

        await until(is_free)


@pytest.mark.parametrize("mode", OutageMode)
async def test_an_outage_is_visible_and_does_what_the_mode_says(
    server: RedisServer, mode: OutageMode
):
    meters = [window("t.w", 10)]

    async with AsyncExitStack() as stack:
        one = await stack.enter_async_context(ledger(server, mode))
        await stack.enter_async_context(ledger(server, mode))
        await asyncio.sleep(3 * BEAT_S)  # so that both know of each other
        assert one.outage is None
        server.kill()
        granted = 0
        for _ in range(20):
            try:
                granted += isinstance(await one.reserve(meters, [1]), Grant)
            except LedgerUnavailable:
                assert mode is OutageMode.CLOSED
        assert granted == {"share": 5, "closed": 0, "open": 20}[mode.value]
        await until(lambda: one.outage == mode.value)
        server.start()
        await until(lambda: one.outage is None)
        left = (await one.reserve(meters, [0])).look(0)[0]
        assert left == max(10 - granted, 0)  # what was granted meanwhile counts


@pytest.mark.parametrize("keeps_state", [True, False])
def test_kill_9_of_redis_lets_not_one_request_too_many_through(
    server: RedisServer, keeps_state: bool
):
    """Four proxies, above the limit, while Redis is killed and started again twice."""
    span_us = BUCKETS * 20_000  # 2.56 s
    meter = window("t.w", 40, span_us)
    calls: list[tuple[int, int]] = []  # that were granted: from when to when
    server.kill()
    server.start(keeps_state=keeps_state)

    async def caller(one: RedisLedger, until_s: float) -> None:
        rng = random.Random(id(one))
        while asyncio.get_running_loop().time() < until_s:
            before = steady_us()
            try:
                result = await one.reserve([meter], [1])
            except LedgerUnavailable:
                await asyncio.sleep(0.02)
                continue
            if isinstance(result, Grant):
                calls.append((before, steady_us()))
                one.settle(result, [1])
            await asyncio.sleep(rng.random() * 0.02)

    async def main() -> None:
        async with AsyncExitStack() as stack:
            proxies = [await stack.enter_async_context(ledger(server)) for _ in range(4)]
            end = asyncio.get_running_loop().time() + 12
            callers = [asyncio.ensure_future(caller(one, end)) for one in proxies]
            for _ in range(2):
                await asyncio.sleep(2)
                server.kill()
                await asyncio.sleep(0.5)
                await asyncio.to_thread(server.start, keeps_state=keeps_state)
            await asyncio.gather(*callers)

    asyncio.run(main())
    for start, _ in calls:  # a call on a busy machine takes long, and is granted at any time of it
        within = [call for call in calls if start <= call[0] and call[1] < start + span_us]
        assert len(within) <= 40
    assert len(calls) >= 0.99 * 40 * 3  # whole windows between and after the kills


@pytest.mark.parametrize("calls", [2, 30])
async def test_a_redis_that_is_back_without_its_data_grants_nothing_before_it_is_restored(
    server: RedisServer, calls: int
):
    """Calls at once, some of which need a new connection: nobody has noticed the restart yet."""
    meter = window("t.w", 10)

    async def is_granted(one: RedisLedger) -> bool:
        with contextlib.suppress(LedgerUnavailable):
            return isinstance(await one.reserve([meter], [1]), Grant)
        return False

    async with ledger(server, beat_s=30) as one:
        assert [await is_granted(one) for _ in range(11)] == [True] * 10 + [False]
        server.kill()
        await asyncio.to_thread(server.start)
        assert not any(await asyncio.gather(*(is_granted(one) for _ in range(calls))))
        await until(lambda: one.outage == "closed")  # a beat that comes soon


async def test_a_redis_that_has_lost_its_data_knows_again_what_runs(server: RedisServer):
    meters = [gauge("t.g", 1), month("t.m", 100, steady_us() + 10**12)]

    async with ledger(server) as one:
        running = await one.reserve(meters, [1, 60])
        server.kill()
        await asyncio.to_thread(server.start)
        await until(lambda: one.redis.is_away)
        await until(lambda: one.outage is None)
        assert isinstance(await one.reserve(meters, [1, 10]), Refusal)
        one.settle(running, [1, 50])
        await one.flush()
        look = (await one.reserve(meters, [0, 0])).look
        assert [look(at)[0] for at in range(2)] == [1, 50]


def test_connections_from_before_a_restart_begin_no_second_outage(server: RedisServer):
    meter = window("t.w", 1000)
    server.kill()
    server.start(keeps_state=True)

    async def main() -> None:
        async with ledger(server) as one:

            async def calls() -> list[object]:
                asked = [one.reserve([meter], [1]) for _ in range(30)]
                return await asyncio.gather(*asked, return_exceptions=True)

            await calls()
            server.kill()
            await calls()
            await until(lambda: one.outage is not None)  # a beat has to notice it
            await asyncio.to_thread(server.start, keeps_state=True)
            await until(lambda: one.outage is None)
            assert granted(await calls()) == 30

    with capture_logs() as logs:
        asyncio.run(main())
    assert [line["event"] for line in logs] == ["limits: redis is away", "limits: redis is back"]


def granted(results: list[Grant | Refusal]) -> int:
    return sum(isinstance(result, Grant) for result in results)


async def test_shares_do_not_grow_while_the_proxies_come_back_to_an_empty_redis(
    server: RedisServer,
):
    """The first one to come back sees no other."""
    meter = window("t.w", 20)

    async with AsyncExitStack() as stack:
        one, other = [
            await stack.enter_async_context(ledger(server, OutageMode.SHARE)) for _ in "12"
        ]
        await until(lambda: one.proxies == 2)
        await other.drop()  # it beats no more
        server.kill()
        assert granted([await one.reserve([meter], [1]) for _ in range(30)]) == 10
        await asyncio.to_thread(server.start)
        while one.outage is not None:
            if one.is_open.is_set():
                assert not granted([await one.reserve([meter], [1])])
            await asyncio.sleep(BEAT_S / 20)


@pytest.mark.parametrize("broken", ["w", "m", "g", "leases"])
def test_a_broken_key_concerns_its_tenant_only(redis_server: RedisServer, broken: str):
    """The others stay exact, and the tenant gets its share until the key is mended."""
    tenant, other = unique("t"), unique("t")
    meters = [
        window(f"{tenant}.w", 10),
        month(f"{tenant}.m", 10, steady_us() + 10**12),
        gauge(f"{tenant}.g", 10),
    ]
    key = f"{tenant_tag(tenant)}{'leases' if broken == 'leases' else f'{tenant}.{broken}'}"

    async def main() -> None:
        async with ledger(redis_server, OutageMode.SHARE) as one:
            raw = one.redis.answers
            await raw.rpush(key, "of another program")
            for used in range(7):
                grant = await one.reserve(meters, [1, 3, 1])
                assert isinstance(grant, Grant if used < 4 else Refusal)  # 3 x 1 + 3 of 10 left
                if isinstance(grant, Grant):
                    one.settle(grant, [1, 2, 0])
                assert isinstance(await one.reserve([window(f"{other}.w", 10)], [1]), Grant)
                await asyncio.sleep(BEAT_S)
                assert one.outage is None
            await raw.delete(key)

            async def is_counted() -> bool:
                look = (await one.reserve(meters, [0, 0, 0])).look
                return [look(at)[0] for at in range(3)] == [6, 2, 10]

            await until(is_counted)
            left = await one.reserve([window(f"{other}.w", 10)], [0])
            assert left.look(0)[0] == 3

    with capture_logs() as logs:
        asyncio.run(main())
    assert [line["event"] for line in logs] == ["limits: redis refuses the keys of a tenant"]
