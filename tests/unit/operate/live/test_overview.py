"""An overview of models, endpoints and tenants, from two pages of metrics."""

from __future__ import annotations

import pytest

from proxy.operate.live.overview import Overview, overview
from proxy.operate.live.window import Window, parsed
from tests.unit.operate.live.samples import LISTING

BEFORE = """\
proxy_ready 1
proxy_requests_total{model="a",outcome="stop"} 10
proxy_prompt_tokens_total{model="a"} 100
proxy_endpoint_tokens_total{pool="default",endpoint="10.0.0.7:8001"} 50
"""
AFTER = """\
proxy_ready 1
proxy_requests_active{model="a"} 3
proxy_requests_active{model="idle"} 0
proxy_requests_total{model="a",outcome="stop"} 14
proxy_requests_total{model="a",outcome="abandoned"} 2
proxy_requests_total{model="a",outcome="engine_stalled"} 6
proxy_prompt_tokens_total{model="a"} 300
proxy_completion_tokens_total{model="a"} 40
proxy_fair_queue_waiting{queue="default/a"} 4
proxy_fair_queue_waiting{queue="spare/a"} 1
proxy_time_to_first_token_seconds_bucket{model="a",le="0.1"} 0
proxy_time_to_first_token_seconds_bucket{model="a",le="0.2"} 8
proxy_time_to_first_token_seconds_bucket{model="a",le="+Inf"} 8
proxy_event_loop_lag_seconds_bucket{le="0.001"} 100
proxy_event_loop_lag_seconds_bucket{le="+Inf"} 100
proxy_endpoint_tokens_total{pool="default",endpoint="10.0.0.7:8001"} 250
proxy_tenant_requests_total{tenant="acme",result="completed"} 3
proxy_tenant_requests_total{tenant="acme",result="failed"} 1
proxy_tenant_prompt_tokens_total{tenant="acme"} 20
proxy_tenant_completion_tokens_total{tenant="acme"} 40
"""


@pytest.fixture
def window() -> Window:
    """Of two seconds."""
    found = Window()
    found.add(parsed(BEFORE), 10.0)
    found.add(parsed(AFTER), 12.0)
    return found


def test_a_model_has_its_rates_queue_and_time_to_the_first_token(window):
    busy, idle = overview(window, LISTING).models
    assert (busy.name, busy.requests, busy.failures) == ("a", 6.0, 3.0)
    assert (busy.running, busy.waiting) == (3.0, 5.0)
    assert (busy.tokens_in, busy.tokens_out) == (100.0, 20.0)
    assert busy.ttft_p50 == pytest.approx(0.15)
    assert busy.ttft_p99 == pytest.approx(0.199)
    assert (idle.name, idle.requests, idle.waiting, idle.ttft_p50) == ("idle", 0.0, None, None)


def test_an_endpoint_has_the_state_and_load_of_the_list(window):
    first, second = overview(window, LISTING).endpoints
    assert (first.address, first.state, first.tokens) == ("10.0.0.7:8001", "ready", 100.0)
    assert (first.running, first.waiting, first.kv_in_use) == (5, 0, 0.31)
    assert (second.state, second.running, second.tokens) == ("ejected", None, 0.0)


def test_without_the_list_it_has_what_the_metrics_give(window):
    found = overview(window, None)
    (endpoint,) = found.endpoints
    assert (endpoint.address, endpoint.tokens, endpoint.state) == ("10.0.0.7:8001", 100.0, None)
    assert len(found.models) == 2


def test_tenants_and_the_process(window):
    found = overview(window, LISTING)
    (tenant,) = found.tenants
    assert (tenant.name, tenant.requests) == ("acme", 2.0)
    assert (tenant.tokens_in, tenant.tokens_out) == (10.0, 20.0)
    assert (found.seconds, found.is_ready) == (2.0, True)
    assert found.lag_p99 == pytest.approx(0.00099)


def test_a_page_of_another_server_is_an_empty_overview():
    window = Window()
    window.add(parsed("up 1\n"), 0.0)
    expected = Overview(
        seconds=0, models=[], endpoints=[], tenants=[], lag_p99=None, is_ready=False
    )
    assert overview(window, None) == expected
