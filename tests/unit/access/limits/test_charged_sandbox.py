"""ChargedSandbox: a refused request whose check was costly counts in its caller's limits."""

from __future__ import annotations

import asyncio

import pytest

from proxy.access.limits.caller_meters import Standings
from proxy.access.limits.charged_sandbox import ChargedSandbox
from proxy.domain.errors import RateLimited
from proxy.domain.identity import Caller, Limits, current_caller
from proxy.domain.record import RequestRecord, current_record
from proxy.domain.sandbox import TooCostly
from tests.doubles.sandbox import InProcess
from tests.fixtures.limits import caller, unlimited

pytestmark = pytest.mark.anyio

TWO = caller(key=Limits(requests_per_minute=2))


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Stand:
    """Every call is too costly while `is_costly`. Each call is a request of its own."""

    def __init__(self) -> None:
        self.inner, self.limiter, self.clock = InProcess(), unlimited(), Clock()
        self.sandbox = ChargedSandbox(self.inner, self.limiter, self.clock)
        self.is_costly = True

    async def call(self, who: Caller = TWO) -> int:
        current_caller.set(who)
        current_record.set(RequestRecord(standings=Standings()))
        return await self.sandbox.run("a", self.work)

    def work(self) -> int:
        if self.is_costly:
            raise TooCostly("it takes more than 2 s")
        return 1

    async def left(self) -> int:
        standings = Standings()
        await self.limiter.look(TWO, standings)
        return standings.requests.remaining


async def test_costly_calls_count_as_requests_and_then_none_is_made_until_the_limit_is_free():
    stand = Stand()
    stand.is_costly = False
    assert await stand.call() == 1
    stand.is_costly = True
    left = [await stand.left()]
    for _ in range(3):
        with pytest.raises(TooCostly):
            await stand.call()
        left.append(await stand.left())
    assert left == [2, 1, 0, 0]
    with pytest.raises(RateLimited) as refused:
        await stand.call()
    assert len(stand.inner.functions) == 4
    assert refused.value.limit == "key.requests_per_minute"
    with pytest.raises(TooCostly):
        await stand.call(caller(key_id="other", key=Limits(requests_per_minute=2)))
    stand.clock.now += refused.value.retry_after_s
    stand.is_costly = False
    assert await stand.call() == 1


async def test_a_request_that_is_counted_already_is_not_given_back():
    stand, standings = Stand(), Standings()
    current_caller.set(TWO)
    current_record.set(RequestRecord(standings=standings))
    async with stand.limiter.counted(TWO, standings):
        with pytest.raises(TooCostly):
            await stand.sandbox.run("a", stand.work)
        standings.is_refused = True
    assert await stand.left() == 1


async def test_a_client_that_disconnects_is_charged_too():
    class Slow(InProcess):
        async def run(self, *_: object) -> None:
            await asyncio.sleep(0)
            raise TooCostly("it takes more than 2 s")

    stand = Stand()
    stand.sandbox = ChargedSandbox(Slow(), stand.limiter)
    call = asyncio.ensure_future(stand.call())
    await asyncio.sleep(0)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    for _ in range(5):
        await asyncio.sleep(0)
    assert await stand.left() == 1
