"""counted_request: requests that generate nothing hold a place, and count when they succeed."""

from __future__ import annotations

import pytest

from proxy.access.limits.standing import Standings
from proxy.domain.errors import ErrorCode, RateLimited
from proxy.domain.identity import Limits
from tests.fixtures.limits import caller, unlimited


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.mark.anyio
async def test_a_second_request_at_once_is_refused_and_a_later_one_is_not():
    limiter, who = unlimited(), caller(key=Limits(concurrent_requests=1))
    async with limiter.counted(who, Standings()):
        with pytest.raises(RateLimited) as refused:
            async with limiter.counted(who, Standings()):
                pass
        assert refused.value.code is ErrorCode.CONCURRENCY_LIMIT_EXCEEDED
    async with limiter.counted(who, Standings()):
        pass


@pytest.mark.anyio
async def test_a_request_that_fails_is_given_back_and_one_that_is_done_counts():
    limiter, who = unlimited(), caller(of_tenant=Limits(requests_per_day=1))
    with pytest.raises(ValueError, match="refused"):
        async with limiter.counted(who, Standings()):
            raise ValueError("refused")
    async with limiter.counted(who, Standings()) as counted:
        counted.give_back()
    async with limiter.counted(who, Standings()):
        pass
    with pytest.raises(RateLimited):
        async with limiter.counted(who, Standings()):
            pass


@pytest.mark.anyio
async def test_a_caller_without_limits_is_not_counted():
    standings = Standings()
    async with unlimited().counted(caller(), standings):
        assert not standings.are_known
