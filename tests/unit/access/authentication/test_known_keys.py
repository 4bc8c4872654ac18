"""KnownKeys: who has a key, how changes arrive, and what an outage of the store does."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest

from proxy.access.authentication.known_keys import (
    ABSENT_S,
    OUTAGE_S,
    POLL_S,
    KnownKeys,
)
from proxy.domain.errors import AuthenticationFailed, ErrorCode
from proxy.domain.key_records import KeysUnavailable
from tests.doubles import clock
from tests.doubles.key_source import BEGAN, PEPPER, KeysInMemory, digest, whole_key


class Wall:
    """A clock that people set."""

    def __init__(self) -> None:
        self.now = BEGAN

    def __call__(self) -> float:
        return self.now.timestamp()


class Keys:
    """KnownKeys over a double, followed by its watch, in a loop whose clock jumps."""

    def __init__(self) -> None:
        self.source, self.wall, self.reports = KeysInMemory(), Wall(), []
        self.known = KnownKeys(
            self.source,
            PEPPER.encode(),
            report=self.reports.append,
            clock=asyncio.get_running_loop().time,
            now=self.wall,
        )

    async def __aenter__(self) -> Keys:
        await self.known.check()
        self._following = asyncio.create_task(self.known.run())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._following.cancel()

    async def may(self, key: str) -> bool:
        try:
            await self.known.caller(key.encode())
        except AuthenticationFailed:
            return False
        return True


def played(scene: Callable[[Keys], Awaitable[None]]) -> Callable[[], None]:
    """Makes a test of a coroutine."""

    def test() -> None:
        async def main() -> None:
            async with Keys() as keys:
                await scene(keys)

        clock.run(main())

    return test


@played
async def test_a_lookup_that_began_before_a_revocation_is_not_remembered(keys):
    key = keys.source.add("k1ey")
    await asyncio.sleep(1)
    found, keys.source.delay_s = keys.source.keys["k1ey"], 0.6

    async def slow(key_id):
        await asyncio.sleep(0.6)
        return found

    keys.source.key = slow
    asking = asyncio.create_task(keys.may(key))
    await asyncio.sleep(0.01)
    keys.source.change("k1ey", revoked_at=BEGAN)
    assert await asking
    del keys.source.key
    assert not await keys.may(key)


@played
async def test_an_expired_key_ends_at_its_second(keys):
    key = keys.source.add("k1ey", expires_at=BEGAN + timedelta(hours=1))
    keys.wall.now = BEGAN + timedelta(minutes=59, seconds=59.9)
    assert await keys.may(key)
    keys.wall.now = BEGAN + timedelta(hours=1)
    with pytest.raises(AuthenticationFailed) as refused:
        await keys.known.caller(key.encode())
    assert refused.value.code is ErrorCode.EXPIRED_API_KEY


@played
async def test_both_keys_of_a_rotation_work_until_the_overlap_ends_and_then_the_new_one(keys):
    old, new = keys.source.add("k1ey"), whole_key("k1ey", "n")
    end = BEGAN + timedelta(hours=1)
    keys.source.change("k1ey", digest=digest(new), overlap_digest=digest(old), overlap_until=end)
    await asyncio.sleep(1)
    for moment, olds in ((BEGAN, True), (end - timedelta(seconds=0.1), True), (end, False)):
        keys.wall.now = moment
        assert (await keys.may(old), await keys.may(new)) == (olds, True), moment
    keys.source.change("k1ey", overlap_until=None)
    await asyncio.sleep(1)
    assert not await keys.may(old), "an overlap without an end"


@played
async def test_a_known_key_works_for_a_minute_of_an_outage_and_an_unknown_one_does_not(keys):
    known, other = keys.source.add("k1ey"), keys.source.add("k2ey")
    await asyncio.sleep(1)
    assert await keys.may(known)
    keys.source.is_down = True
    await asyncio.sleep(OUTAGE_S - 1)
    assert await keys.may(known)
    with pytest.raises(KeysUnavailable):
        await keys.known.caller(other.encode())
    await asyncio.sleep(2)
    with pytest.raises(KeysUnavailable):
        await keys.known.caller(known.encode())
    assert keys.reports[-1] is False
    keys.source.change("k1ey", revoked_at=BEGAN)
    keys.source.is_down = False
    await asyncio.sleep(POLL_S + 0.01)
    assert not await keys.may(known)
    assert await keys.may(other)
    assert keys.reports[-1] is True


@played
async def test_a_store_that_hangs_keeps_no_request_of_a_known_key(keys):
    key = keys.source.add("k1ey")
    await asyncio.sleep(1)
    assert await keys.may(key)
    keys.source.delay_s = 3600
    began = asyncio.get_running_loop().time()
    assert await keys.may(key)
    assert asyncio.get_running_loop().time() == began
    with pytest.raises(KeysUnavailable):
        await keys.known.caller(whole_key("other").encode())


@played
async def test_an_unknown_key_is_looked_up_once_until_it_is_made_or_ten_seconds_are_over(keys):
    keys.source.delay_s = 0.1
    key = whole_key("later")
    assert not any(await asyncio.gather(*(keys.may(key) for _ in range(100))))
    assert not await keys.may(key)
    assert keys.source.reads == ["later"]
    await asyncio.sleep(ABSENT_S + 1)
    assert not await keys.may(key)
    assert keys.source.reads == ["later", "later"]
    keys.source.add("later")
    await asyncio.sleep(POLL_S + 0.01)
    assert await keys.may(key)


@played
async def test_random_keys_neither_flood_the_store_nor_displace_known_keys(keys):
    key = keys.source.add("k1ey")
    await asyncio.sleep(1)
    assert await keys.may(key)
    keys.source.delay_s = 0.4
    attackers = [
        asyncio.create_task(keys.known.caller(whole_key(f"r{n:05}").encode())) for n in range(2000)
    ]
    await asyncio.sleep(0.1)
    keys.source.add("another")  # everything known is dropped, and read again
    await asyncio.sleep(0.5)
    began = asyncio.get_running_loop().time()
    assert await keys.may(key)
    assert asyncio.get_running_loop().time() - began < 0.9  # the key, and its tenant
    results = await asyncio.gather(*attackers, return_exceptions=True)
    assert {type(one) for one in results} <= {AuthenticationFailed, KeysUnavailable}
    assert keys.source.most_at_once <= 9


@played
async def test_a_caller_that_disconnects_does_not_end_the_lookup_of_others(keys):
    keys.source.delay_s = 0.5
    key = keys.source.add("k1ey")
    first, second = (asyncio.create_task(keys.may(key)) for _ in range(2))
    await asyncio.sleep(0.1)
    first.cancel()
    assert await second
