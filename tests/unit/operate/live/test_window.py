"""Rates and quantiles from pages of metrics, also over restarts and with new series."""

from __future__ import annotations

import math
from bisect import bisect_left

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest

from proxy.domain.errors import LaunchError
from proxy.operate.live.window import (
    INTERVALS,
    Page,
    Window,
    parsed,
    quantile,
    summed,
)

REQUESTS, TTFT = "requests_total", "ttft_seconds"


class Server:
    """A process with a counter and a histogram; a new one is a restart."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter("requests", "", ("model", "outcome"), registry=self.registry)
        self.ttft = Histogram(
            "ttft_seconds", "", ("model",), buckets=(0.1, 0.2, 0.4), registry=self.registry
        )

    def page(self) -> Page:
        return parsed(generate_latest(self.registry).decode())


def test_a_page_has_each_series_by_its_labels():
    server = Server()
    server.requests.labels("a", "stop").inc(3)
    server.requests.labels('q"uo\\te\n', "length").inc(4)
    page = server.page()
    assert page[REQUESTS][("model", "a"), ("outcome", "stop")] == 3
    assert summed(page, REQUESTS, "model") == {("a",): 3, ('q"uo\\te\n',): 4}
    assert summed(page, REQUESTS) == {(): 7}
    assert summed(page, REQUESTS, "tenant") == summed(page, "none") == {}


@pytest.mark.parametrize("text", ["<html>no metrics</html>", 'a{b="c} 1', "a b c d e"])
def test_another_page_is_no_page_of_metrics(text):
    with pytest.raises(LaunchError, match="Prometheus"):
        parsed(text)


def test_rates_are_over_all_intervals_of_the_window():
    server, window = Server(), Window()
    server.requests.labels("a", "stop").inc(1000)
    window.add(server.page(), 100.0)
    assert window.rates(REQUESTS, "model") == {}
    server.requests.labels("a", "stop").inc(6)
    window.add(server.page(), 102.0)
    assert window.rates(REQUESTS, "model") == {("a",): 3.0}
    server.requests.labels("b", "length").inc(4)
    window.add(server.page(), 104.0)
    assert window.rates(REQUESTS, "model", "outcome") == {("a", "stop"): 1.5, ("b", "length"): 1.0}
    assert window.seconds == 4.0


def test_an_old_interval_leaves_the_window():
    server, window = Server(), Window()
    window.add(server.page(), 0.0)
    server.requests.labels("a", "stop").inc(100)
    for second in range(1, INTERVALS + 1):
        window.add(server.page(), float(second))
        assert window.rates(REQUESTS)[()] == 100 / second
    window.add(server.page(), INTERVALS + 1.0)
    assert window.rates(REQUESTS)[()] == 0.0


def test_a_restart_between_two_pages_counts_what_came_after_it():
    server, window = Server(), Window()
    server.requests.labels("a", "stop").inc(1000)
    for _ in range(1000):
        server.ttft.labels("a").observe(0.3)
    window.add(server.page(), 0.0)
    again = Server()
    again.requests.labels("a", "stop").inc(5)
    again.ttft.labels("a").observe(0.05)
    window.add(again.page(), 1.0)
    assert window.rates(REQUESTS, "model") == {("a",): 5.0}
    assert 0 < window.quantiles(TTFT, 0.99, "model")["a",] <= 0.1


def test_quantiles_are_of_the_window_alone_and_of_each_group():
    server, window = Server(), Window()
    for _ in range(1000):
        server.ttft.labels("a").observe(0.05)
    window.add(server.page(), 0.0)
    server.ttft.labels("a").observe(0.15)
    server.ttft.labels("b").observe(0.3)
    window.add(server.page(), 1.0)
    found = window.quantiles(TTFT, 0.5, "model")
    assert found == {("a",): pytest.approx(0.15), ("b",): pytest.approx(0.3)}
    window.add(server.page(), 2.0)
    assert window.quantiles("none", 0.5, "model") == {}


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


@pytest.mark.parametrize(
    ("share", "buckets", "expected"),
    [
        (0.99, {0.1: 1, math.inf: 2}, 0.1),  # above the last bound
        (0.5, {math.inf: 3}, 0.0),
        (0.5, {}, None),
        (0.5, {0.1: 0, math.inf: 0}, None),
    ],
)
def test_a_quantile_at_the_edge(share, buckets, expected):
    assert quantile(share, buckets) == expected


@given(st.lists(st.floats(0.001, 5), min_size=1, max_size=50), st.integers(1, 64))
def test_it_is_in_the_bucket_of_the_value_itself(values, parts):
    share = parts / 64  # exact in binary, so that a rank is never next to a whole number
    exact = sorted(values)[math.ceil(share * len(values)) - 1]
    place = bisect_left(BOUNDS, exact)
    found = quantile(share, counted(values))
    lower = 0.0 if place == 0 else BOUNDS[place - 1]
    upper = min(BOUNDS[place], 1.0)
    assert lower - 1e-9 <= found <= upper + 1e-9
