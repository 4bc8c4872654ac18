"""A frame of `top`, from what the live status sends, at two widths."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.operate.live.frame import Frame, Order
from proxy.telemetry.live_figures import COLUMNS
from tests.unit.operate.live.samples import console, printed

URL = "http://127.0.0.1:9000"
ADDRESS, OTHER = "10.0.0.7:8001", "10.0.0.8:8001"
TOKENS = [{"pool": "default", "address": ADDRESS, "tokens_per_s": 1000.0}]
ENDPOINTS = [
    {**TOKENS[0], "state": "ready", "load": {"waiting": 0, "running": 5, "kv_in_use": 0.31}},
    {
        **{"pool": "spare[1]", "address": OTHER, "tokens_per_s": 0.0, "state": "ejected"},
        "load": {"waiting": None, "running": None, "kv_in_use": None},
    },
]


def model(name: str, **known: float) -> dict[str, Any]:
    none = {"waiting": None, "ttft_p50_s": None, "ttft_p99_s": None}
    return {"model": name, **dict.fromkeys(RATES, 0.0), **none, **known}


RATES = [each["name"] for each in COLUMNS["models"]]
MODELS = [
    model(
        "demo",
        **{"requests_per_s": 6.0, "failures_per_s": 3.0, "prompt_tokens_per_s": 1234.5},
        **{"running": 3.0, "waiting": 5.0, "ttft_p50_s": 0.15, "ttft_p99_s": 0.199},
        completion_tokens_per_s=45678.0,
    ),
    model("meta-llama/Llama-3.1-8B-Instruct"),
]
TENANTS = [
    dict(zip(("tenant", *(each["name"] for each in COLUMNS["tenants"])), row, strict=True))
    for row in (("acme", 2.0, 10.0, 20.0), ("[red]", 0.5, 0.0, 0.0))
]
LIVE = {
    "is_ready": True,
    "window_s": 2.0,
    "loop_lag_p99_s": 0.00099,
    "models": MODELS,
    "tenants": TENANTS,
    "batches": [
        {"batches": "of all tenants", "open": 2.0, "completed_per_s": 4.5, "failed_per_s": 0.0}
    ],
    "endpoints": ENDPOINTS,
}
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

batches                                                                      open  lines/s  failed/s
of all tenants                                                                  2      4.5         0
"""


def shown(changes: dict[str, Any], *, width: int = 100, **more: Any) -> str:
    out = console(width)
    out.print(Frame(url=URL, live={**LIVE, **changes}, columns=COLUMNS, **more))
    return f"{printed(out)}\n"


def test_a_wide_frame():
    assert shown({}, notes=("A note.",), has_keys=True) == WIDE


def test_a_reader_who_is_no_operator_sees_the_tokens_of_endpoints():
    lines = shown({"endpoints": TOKENS}).splitlines()
    rows = [line.split() for line in lines if "10.0." in line]
    assert rows == [[ADDRESS, "default", "-", "-", "-", "-", "1k"]]


SORTED = [
    model("a", completion_tokens_per_s=1.0),
    model("b", requests_per_s=2.0),
    model("c", requests_per_s=1.0),
    model("d", ttft_p99_s=8.9),
]


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
    alone = {"models": SORTED, "tenants": [], "batches": [], "endpoints": []}
    lines = shown(alone, order=order).splitlines()
    assert "".join(line[0] for line in lines[3:]) == expected
