"""Metrics of queues and endpoints: those that are gone, and those that are too many."""

from __future__ import annotations

import math

import pytest
from prometheus_client import CollectorRegistry

from proxy.domain.endpoints import EndpointState
from proxy.domain.scheduling import QueueState
from proxy.telemetry.endpoint_metrics import (
    MOST_ENDPOINTS,
    OTHERS,
    EndpointMetrics,
    Outcome,
    Place,
)
from proxy.telemetry.metrics import QueueMetrics

QUEUE = "default/demo"


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def metrics(registry) -> EndpointMetrics:
    return EndpointMetrics(registry)


def test_a_state_that_no_endpoint_has_any_more_goes_back_to_zero(registry, metrics):
    metrics.counted("west", {EndpointState.READY: 3, EndpointState.NOT_READY: 1})
    metrics.counted("west", {EndpointState.READY: 4})
    name, pool = "proxy_pool_endpoints", {"pool": "west"}
    assert registry.get_sample_value(name, {**pool, "state": "ready"}) == 4
    assert registry.get_sample_value(name, {**pool, "state": "not_ready"}) == 0


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


def test_queues_are_counted_and_one_that_is_gone_is_empty():
    registry = CollectorRegistry()
    metrics = QueueMetrics(registry)

    def value(name: str) -> float | None:
        return registry.get_sample_value(f"proxy_fair_queue_{name}", {"queue": QUEUE})

    metrics.counted([QueueState(queue=QUEUE, capacity=9, running=9, waiting=4)])
    assert [value(name) for name in ("capacity", "running", "waiting")] == [9, 9, 4]
    metrics.counted([QueueState(queue=QUEUE, capacity=None, running=1, waiting=0)])
    assert math.isnan(value("capacity"))
    metrics.counted([])
    assert [value(name) for name in ("running", "waiting")] == [0, 0]
