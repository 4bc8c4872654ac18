"""A frame of `top`, from two pages of metrics and the list of endpoints, at two widths."""

from __future__ import annotations

import pytest

from proxy.operate.live.frame import Frame, Listing, Order
from proxy.telemetry.metrics_window import Window, parsed
from tests.unit.operate.live.samples import console, printed

URL = "http://127.0.0.1:9000"
LISTING: Listing = {
    "data": [
        {
            "pool": "default",
            "address": "10.0.0.7:8001",
            "state": "ready",
            "load": {"waiting": 0, "running": 5, "kv_in_use": 0.31},
        },
        {
            "pool": "spare[1]",
            "address": "10.0.0.8:8001",
            "state": "ejected",
            "load": {"waiting": None, "running": None, "kv_in_use": None},
        },
    ],
}
BEFORE = """\
proxy_requests_total{model="demo",outcome="stop"} 10
proxy_prompt_tokens_total{model="demo"} 100
proxy_endpoint_tokens_total{pool="default",endpoint="10.0.0.7:8001"} 50
"""
AFTER = """\
proxy_ready 1
proxy_requests_active{model="demo"} 3
proxy_requests_active{model="meta-llama/Llama-3.1-8B-Instruct"} 0
proxy_requests_total{model="demo",outcome="stop"} 14
proxy_requests_total{model="demo",outcome="abandoned"} 2
proxy_requests_total{model="demo",outcome="engine_stalled"} 6
proxy_prompt_tokens_total{model="demo"} 2569
proxy_completion_tokens_total{model="demo"} 91356
proxy_fair_queue_waiting{queue="default/demo"} 4
proxy_fair_queue_waiting{queue="spare/demo"} 1
proxy_time_to_first_token_seconds_bucket{model="demo",le="0.1"} 0
proxy_time_to_first_token_seconds_bucket{model="demo",le="0.2"} 8
proxy_time_to_first_token_seconds_bucket{model="demo",le="+Inf"} 8
proxy_event_loop_lag_seconds_bucket{le="0.001"} 100
proxy_event_loop_lag_seconds_bucket{le="+Inf"} 100
proxy_endpoint_tokens_total{pool="default",endpoint="10.0.0.7:8001"} 2050
proxy_tenant_requests_total{tenant="acme",result="completed"} 3
proxy_tenant_requests_total{tenant="acme",result="failed"} 1
proxy_tenant_requests_total{tenant="[red]",result="failed"} 1
proxy_tenant_prompt_tokens_total{tenant="acme"} 20
proxy_tenant_completion_tokens_total{tenant="acme"} 40
"""
WIDE = """\
http://127.0.0.1:9000  ready  loop lag p99 0.99 ms  last 2.0 s
q quit  sort: n name, r requests, t tokens, l TTFT
A note.

model                              req/s  failed/s  tok in/s  run  wait  TTFT p50     p99  tok out/s
demo                                   6         3      1.2k    3     5    150 ms  199 ms      45.7k
meta-llama/Llama-3.1-8B-Instruct       0         0         0    0     -         -       -          0

endpoint                                                    pool      state    run  wait   KV  tok/s
10.0.0.7:8001                                               default   ready      5     0  31%     1k
10.0.0.8:8001                                               spare[1]  ejected    -     -    -      0

tenant                                                                    req/s  tok in/s  tok out/s
acme                                                                          2        10         20
[red]                                                                       0.5         0          0
"""


def shown(
    before: str, after: str, listing: Listing | None = LISTING, *, width: int = 100, **more: object
) -> str:
    """The pages are two seconds apart."""
    window, out = Window(), console(width)
    window.add(parsed(before), 10.0)
    window.add(parsed(after), 12.0)
    out.print(Frame(url=URL, window=window, listing=listing, **more))
    return f"{printed(out)}\n"


def test_a_wide_frame():
    assert shown(BEFORE, AFTER, notes=("A note.",), has_keys=True) == WIDE


def test_without_the_list_endpoints_have_what_the_metrics_give():
    rows = [line.split() for line in shown(BEFORE, AFTER, None).splitlines() if "10.0." in line]
    assert rows == [["10.0.0.7:8001", "default", "-", "-", "-", "-", "1k"]]


SORTED = """\
proxy_requests_total{model="b",outcome="stop"} 4
proxy_requests_total{model="c",outcome="stop"} 2
proxy_completion_tokens_total{model="a"} 2
proxy_requests_active{model="a"} 0
proxy_requests_active{model="d"} 0
proxy_time_to_first_token_seconds_bucket{model="d",le="9"} 1
proxy_time_to_first_token_seconds_bucket{model="d",le="+Inf"} 1
"""


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        (Order.NAME, "abcd"),
        (Order.REQUESTS, "bcad"),
        (Order.TOKENS, "abcd"),
        (Order.LATENCY, "dabc"),
    ],
)
def test_rows_are_sorted_the_largest_first_then_by_name(order, expected):
    lines = shown("", SORTED, None, order=order).splitlines()
    assert "".join(line[0] for line in lines[3:]) == expected
