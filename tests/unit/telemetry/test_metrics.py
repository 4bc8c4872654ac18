"""Metrics of queues and endpoints: those that are gone, and those that are too many."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry

from proxy.telemetry.endpoint_metrics import (
    MOST_ENDPOINTS,
    OTHERS,
    EndpointMetrics,
    Outcome,
    Place,
)

QUEUE = "default/demo"


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def metrics(registry) -> EndpointMetrics:
    return EndpointMetrics(registry)


def test_endpoints_beyond_the_bound_share_one_series(registry, metrics):
    for number in range(MOST_ENDPOINTS + 3):
        metrics.ejected(Place("west", f"10.0.0.1:{number}"))
    metrics.ended(Place("west", f"10.0.0.1:{MOST_ENDPOINTS + 1}"), Outcome.LOST, 7)
    others = {"pool": "west", "endpoint": OTHERS}
    value = registry.get_sample_value
    assert value("proxy_endpoint_ejections_total", others) == 3
    assert value("proxy_endpoint_tokens_total", others) == 7
    assert value("proxy_endpoint_streams_total", {**others, "outcome": "lost"}) == 1
    own = {"pool": "west", "endpoint": "10.0.0.1:0"}
    assert value("proxy_endpoint_ejections_total", own) == 1
