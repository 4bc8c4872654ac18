"""Quantiles of a histogram, as Prometheus' histogram_quantile has them."""

from __future__ import annotations

import math
from bisect import bisect_left

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.operate.live.quantile import quantile

BOUNDS = (0.1, 0.2, 0.5, 1.0, math.inf)


def counted(values: list[float]) -> dict[float, float]:
    return {bound: sum(value <= bound for value in values) for bound in BOUNDS}


@pytest.mark.parametrize(
    ("share", "expected"),
    # 10 up to 0.1, 10 more up to 0.2, none up to 0.5, 20 more up to 1.
    [(0.25, 0.1), (0.125, 0.05), (0.5, 0.2), (0.375, 0.15), (0.75, 0.75), (1.0, 1.0), (0.0, 0.0)],
)
def test_it_is_linear_within_a_bucket(share, expected):
    buckets = {0.1: 10, 0.2: 20, 0.5: 20, 1.0: 40, math.inf: 40}
    assert quantile(share, buckets) == pytest.approx(expected)


def test_what_is_above_the_last_bound_counts_as_that_bound():
    assert quantile(0.99, {0.1: 1, math.inf: 2}) == 0.1
    assert quantile(0.5, {math.inf: 3}) == 0.0


def test_without_observations_there_is_none():
    assert quantile(0.5, {}) is None
    assert quantile(0.5, {0.1: 0, math.inf: 0}) is None


@given(st.lists(st.floats(0.001, 5), min_size=1, max_size=50), st.integers(1, 64))
def test_it_is_in_the_bucket_of_the_value_itself(values, parts):
    share = parts / 64  # exact in binary, so that a rank is never next to a whole number
    exact = sorted(values)[math.ceil(share * len(values)) - 1]
    place = bisect_left(BOUNDS, exact)
    found = quantile(share, counted(values))
    lower = 0.0 if place == 0 else BOUNDS[place - 1]
    upper = min(BOUNDS[place], 1.0)
    assert lower - 1e-9 <= found <= upper + 1e-9
