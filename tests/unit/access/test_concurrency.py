"""ConcurrencyLimit, ModelConcurrency: permits live as long as their stream, and count choices."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace

import pytest

from proxy.access.concurrency import (
    LONGEST_S,
    SHORTEST_S,
    UNKNOWN_S,
    ConcurrencyLimit,
    ModelConcurrency,
    PermitRate,
)
from proxy.domain.errors import InvalidRequest, RateLimited
from tests.doubles.engine import CARD, FACTS


def test_one_more_than_the_limit_is_refused_until_one_ends():
    limit = ConcurrencyLimit(2)
    with limit.permits():
        with limit.permits():
            with pytest.raises(RateLimited, match="at most 2 generations"), limit.permits():
                pass
            assert limit.running == 2
        with limit.permits():
            pass
    assert limit.running == 0


def test_a_permit_comes_back_when_its_request_fails():
    limit = ConcurrencyLimit(1)
    with pytest.raises(ValueError, match="broken"), limit.permits():
        raise ValueError("broken")
    assert limit.running == 0
    with limit.permits():
        pass


def test_without_a_limit_nobody_is_refused():
    limit = ConcurrencyLimit(None)
    with limit.permits(), limit.permits(2):
        assert limit.running == 3


def test_a_request_takes_all_its_permits_or_none():
    limit = ConcurrencyLimit(5)
    with limit.permits(3):
        with pytest.raises(RateLimited), limit.permits(3):
            pass
        with limit.permits(2):
            assert limit.running == 5


def test_a_large_limit_takes_no_memory_before_it_is_used():
    tracemalloc.start()
    try:
        limit = ConcurrencyLimit(1_000_000)
        with limit.permits(3):
            _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 100_000


def test_what_never_fits_is_the_callers_mistake():
    with pytest.raises(InvalidRequest, match="for 4 generations at once") as refused:
        ConcurrencyLimit(3).take(4)
    assert (refused.value.param, refused.value.code) == ("choices", "invalid_parameter")


def test_models_have_limits_of_their_own_by_their_rows():
    admission = ModelConcurrency(per_row=2)
    small = replace(CARD, triton_model="small", facts=replace(FACTS, rows=1))
    large = replace(CARD, triton_model="large", facts=replace(FACTS, rows=4))
    with admission.permits(small, 2), admission.permits(large, 8):
        assert admission.running == 10
        for card in (small, large):
            with pytest.raises(RateLimited), admission.permits(card, 1):
                pass


def test_an_adapter_shares_the_rows_of_its_model():
    admission = ModelConcurrency(per_row=1)
    model = replace(CARD, facts=replace(FACTS, rows=1))
    adapter = replace(model, name="adapter", parent="demo")
    with (
        admission.permits(model, 1),
        pytest.raises(RateLimited, match="'demo'"),
        admission.permits(adapter, 1),
    ):
        pass


def test_the_limit_of_all_models_holds_beside_theirs():
    admission = ModelConcurrency(3, per_row=16)
    other = replace(CARD, triton_model="other")
    with (
        admission.permits(CARD, 2),
        pytest.raises(RateLimited, match="This server"),
        admission.permits(other, 2),
    ):
        pass
    with admission.permits(other, 3):  # what the refused one had taken of its model came back
        pass


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_without_returns_the_wait_is_a_guess():
    assert PermitRate().wait_s(1) == UNKNOWN_S


def test_the_wait_is_the_missing_permits_over_the_measured_rate():
    clock = Clock()
    rate = PermitRate(clock)
    for _ in range(11):  # one each half second
        rate.returned(1)
        clock.now += 0.5
    assert rate.wait_s(1) == pytest.approx(0.55)
    assert rate.wait_s(10) == pytest.approx(5.5)


def test_permits_that_come_back_together_count_each():
    clock = Clock()
    rate = PermitRate(clock)
    rate.returned(4)
    clock.now += 2
    rate.returned(4)
    assert rate.wait_s(2) == pytest.approx(1.0)


def test_a_rate_that_has_dried_up_means_a_longer_wait():
    clock = Clock()
    rate = PermitRate(clock)
    rate.returned(1)
    rate.returned(1)
    soon = rate.wait_s(1)
    clock.now += 30
    assert rate.wait_s(1) > soon


def test_no_wait_is_shorter_or_longer_than_clients_take():
    clock = Clock()
    rate = PermitRate(clock)
    for _ in range(64):
        rate.returned(128)
    assert rate.wait_s(1) == SHORTEST_S
    clock.now += 100_000
    assert rate.wait_s(128) == LONGEST_S


def test_a_client_that_returns_on_time_finds_a_permit():
    """Permits come back every 200 ms: at the time told, at least one more has."""
    clock = Clock()
    rate = PermitRate(clock)
    for _ in range(20):
        clock.now += 0.2
        rate.returned(1)
    asked_at = clock.now + 0.05
    clock.now = asked_at
    told = rate.wait_s(1)
    assert 0.15 <= told <= 0.25
