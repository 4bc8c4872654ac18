from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry

from proxy.domain.endpoints import EndpointState
from proxy.telemetry.endpoint_metrics import (
    MOST_ENDPOINTS,
    OTHERS,
    EndpointMetrics,
    Outcome,
    Place,
)


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def metrics(registry) -> EndpointMetrics:
    return EndpointMetrics(registry)


def states(registry: CollectorRegistry, pool: str) -> dict[str, float | None]:
    return {
        state.value: registry.get_sample_value(
            "proxy_pool_endpoints", {"pool": pool, "state": state.value}
        )
        for state in EndpointState
    }


def test_a_state_that_no_endpoint_has_any_more_goes_back_to_zero(registry, metrics):
    metrics.counted("west", {})
    assert set(states(registry, "west").values()) == {0}
    metrics.counted("west", {EndpointState.READY: 3, EndpointState.NOT_READY: 1})
    metrics.counted("west", {EndpointState.READY: 4})
    found = states(registry, "west")
    assert (found["ready"], found["not_ready"]) == (4, 0)


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
