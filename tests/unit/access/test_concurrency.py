"""ConcurrencyLimit, ModelConcurrency: permits live as long as their stream, and count choices."""

from __future__ import annotations

from dataclasses import replace

import pytest

from proxy.access.concurrency import (
    LONGEST_S,
    SHORTEST_S,
    ConcurrencyLimit,
    ModelConcurrency,
    PermitRate,
)
from proxy.domain.errors import RateLimited
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


def test_a_request_takes_all_its_permits_or_none():
    limit = ConcurrencyLimit(5)
    with limit.permits(3):
        with pytest.raises(RateLimited), limit.permits(3):
            pass
        with limit.permits(2):
            assert limit.running == 5


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


def test_the_wait_is_the_missing_permits_over_the_measured_rate():
    clock = Clock()
    rate = PermitRate(clock)
    for _ in range(11):  # one each half second
        rate.returned(1)
        clock.now += 0.5
    assert rate.wait_s(1) == pytest.approx(0.55)
    assert rate.wait_s(10) == pytest.approx(5.5)


def test_no_wait_is_shorter_or_longer_than_clients_take():
    clock = Clock()
    rate = PermitRate(clock)
    for _ in range(64):
        rate.returned(128)
    assert rate.wait_s(1) == SHORTEST_S
    clock.now += 100_000
    assert rate.wait_s(128) == LONGEST_S
