"""priority_ceiling: no request gets more than its caller may have."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from proxy.access.limits.request_limiter import under_ceiling
from proxy.domain.record import RequestRecord
from proxy.domain.request import GenerationRequest, TextPrompt
from tests.fixtures.limits import caller

INT32 = st.integers(-(2**31), 2**31 - 1)
REQUEST = GenerationRequest(id="r", model="demo", prompt=TextPrompt(text="hi"))


@given(st.none() | INT32, st.none() | INT32, INT32)
def test_the_priority_is_the_lower_of_what_is_asked_and_what_is_allowed(asked, own, most):
    record, who = RequestRecord(), replace(caller(), max_priority=own)
    request = replace(REQUEST, priority=asked)
    got = under_ceiling(request, who, most, record)
    ceiling = most if own is None else own
    assert (got.priority or 0) == min(asked or 0, ceiling)
    is_lowered = (asked or 0) > ceiling
    assert record.capped_priority == (ceiling if is_lowered and asked is not None else None)
    assert got.has_assigned_priority == (is_lowered and asked is None)
    if not is_lowered:
        assert got is request
