"""RequestLimiter: priorities under the ceiling, and requests that generate nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.access.limits.request_limiter import under_ceiling
from proxy.access.limits.standing import Standings
from proxy.domain.errors import ErrorCode, RateLimited
from proxy.domain.identity import Limits
from proxy.domain.record import RequestRecord
from proxy.domain.request import GenerationRequest, TextPrompt
from tests.fixtures.limits import caller, unlimited

INT32 = st.integers(-(2**31), 2**31 - 1)
REQUEST = GenerationRequest(id="r", model="demo", prompt=TextPrompt(text="hi"))


@given(st.none() | INT32, st.none() | INT32, INT32)
def test_the_priority_is_the_lower_of_what_is_asked_and_what_is_allowed(asked, own, most):
    report, who = RequestRecord(), replace(caller(), max_priority=own)
    request = replace(REQUEST, priority=asked)
    got = under_ceiling(request, who, most, report)
    ceiling = most if own is None else own
    assert (got.priority or 0) == min(asked or 0, ceiling)
    is_lowered = (asked or 0) > ceiling
    assert report.capped_priority == (ceiling if is_lowered and asked is not None else None)
    assert got.has_assigned_priority == (is_lowered and asked is None)
    if not is_lowered:
        assert got is request


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
