"""W3C's `traceparent` and `tracestate` of callers."""

from __future__ import annotations

import pytest

from proxy.telemetry.traces.tracing import LONGEST_STATE, callers_trace

TRACE, SPAN = b"4bf92f3577b34da6a3ce929d0e0e4736", b"00f067aa0ba902b7"


def parent(value: bytes, *more: tuple[bytes, bytes]):
    return callers_trace([(b"traceparent", value), *more])


@pytest.mark.parametrize(("flags", "is_sampled"), [(b"00", False), (b"01", True), (b"03", True)])
def test_a_callers_trace_is_read(flags, is_sampled):
    found = parent(b"-".join((b"00", TRACE, SPAN, flags)))
    assert (found.trace_id, found.parent_id) == (int(TRACE, 16), int(SPAN, 16))
    assert found.is_sampled is is_sampled


def test_a_later_version_may_have_more_fields():
    assert parent(b"-".join((b"01", TRACE, SPAN, b"01", b"more"))).is_sampled
    assert parent(b"-".join((b"00", TRACE, SPAN, b"01", b"more"))) is None


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"-".join((b"ff", TRACE, SPAN, b"01")),
        b"-".join((b"00", b"0" * 32, SPAN, b"01")),
        b"-".join((b"00", TRACE, b"0" * 16, b"01")),
        b"-".join((b"00", TRACE.upper(), SPAN, b"01")),
        b"-".join((b"00", TRACE[:-1], SPAN, b"01")),
        b"-".join((b"00", TRACE, SPAN)),
        b"x" * 100_000,
    ],
)
def test_an_invalid_one_counts_as_none(value):
    assert parent(value) is None


def test_two_of_them_count_as_none():
    value = b"-".join((b"00", TRACE, SPAN, b"01"))
    assert parent(value, (b"traceparent", value)) is None


def test_the_state_is_kept_unless_it_is_long():
    value = b"-".join((b"00", TRACE, SPAN, b"01"))
    states = ((b"tracestate", b"a=1"), (b"tracestate", b"b=2"))
    assert parent(value, *states).state == "a=1,b=2"
    assert parent(value, (b"tracestate", b"a" * (LONGEST_STATE + 1))).state == ""
