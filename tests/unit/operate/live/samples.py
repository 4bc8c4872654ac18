"""What the tests of frames and traces show: numbers that are easy to find again."""

from __future__ import annotations

from io import StringIO
from typing import Any

from rich.console import Console

from proxy.operate.live.overview import EndpointRow, ModelRow, Overview, TenantRow

LISTING: dict[str, Any] = {
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


def model(name: str, **fields: Any) -> ModelRow:
    """One that is idle, but for these fields."""
    idle: dict[str, Any] = {
        **dict.fromkeys(("requests", "failures", "running", "tokens_in", "tokens_out"), 0.0),
        **dict.fromkeys(("waiting", "ttft_p50", "ttft_p99")),
    }
    return ModelRow(name=name, **{**idle, **fields})


BUSY = model(
    "demo", requests=12.3, failures=0.2, running=5.0, waiting=2.0, ttft_p50=0.0311, ttft_p99=1.412,
    tokens_in=1234.5, tokens_out=45678.0,
)  # fmt: skip
ENDPOINTS = (
    EndpointRow(
        pool="default", address="10.0.0.7:8001", state="ready", running=5, waiting=0,
        kv_in_use=0.31, tokens=1000.0,
    ),
    EndpointRow(
        pool="spare[1]", address="10.0.0.8:8001", state="ejected", running=None, waiting=None,
        kv_in_use=None, tokens=0.0,
    ),
)  # fmt: skip
OVERVIEW = Overview(
    seconds=10.04,
    lag_p99=0.0034,
    is_ready=True,
    models=(model("meta-llama/Llama-3.1-8B-Instruct"), BUSY),
    endpoints=ENDPOINTS,
    tenants=(
        TenantRow(name="[red]", requests=0.5, tokens_in=100.0, tokens_out=90.0),
        TenantRow(name="acme", requests=10.0, tokens_in=1100.0, tokens_out=900.55),
    ),
)


def stage(
    name: str,
    begin_ms: float,
    duration_ms: float,
    parent: int | None = None,
    error: str | None = None,
    **attributes: Any,
) -> dict[str, Any]:
    return {
        "name": name,
        "begin_ms": begin_ms,
        "duration_ms": duration_ms,
        "parent": parent,
        "error": error,
        "attributes": attributes,
    }


RECORD: dict[str, Any] = {
    "id": "req_6f1c",
    "answer_id": "chatcmpl-5f0c",
    "began_at": "2026-03-01T12:00:00.250+00:00",
    "method": "POST",
    "path": "/v1/chat/completions",
    "status": 200,
    "tenant": "acme[b]",
    "model": "demo",
    "finish": "stop",
    "prompt_tokens": 21,
    "cached_tokens": 16,
    "completion_tokens": 48,
    "ttft_ms": 331.4,
    "queue_ms": 100.0,
    "duration_ms": 800.0,
    "resent": 1,
    "stages": [
        stage("triton", 225.0, 575.0, endpoint="10.0.0.8:8001", tokens=48),
        stage("decode", 331.0, 469.0, 0),
        stage("prefill", 306.0, 25.0, 0),
        stage("queue", 4.0, 100.0),
        stage("triton", 104.0, 120.0, error="ModelUnavailable", endpoint="10.0.0.7:8001"),
        stage("routing", 104.0, 0.3, 4),
    ],
}


def console(width: int) -> Console:
    return Console(width=width, file=StringIO(), highlight=False, color_system=None)


def printed(console: Console) -> str:
    """What the console has printed, without the spaces at the ends of its lines."""
    assert isinstance(console.file, StringIO)
    return "\n".join(line.rstrip() for line in console.file.getvalue().splitlines())
