"""Rates and quantiles from pages of metrics, also with new series."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry, Counter, Histogram

from proxy.telemetry.metrics_window import (
    Page,
    Window,
    page_of,
)

REQUESTS, TTFT = "requests_total", "ttft_seconds"


class Server:
    """A process with a counter and a histogram."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter("requests", "", ("model", "outcome"), registry=self.registry)
        self.ttft = Histogram(
            "ttft_seconds", "", ("model",), buckets=(0.1, 0.2, 0.4), registry=self.registry
        )

    def page(self) -> Page:
        return page_of(self.registry.collect())


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
