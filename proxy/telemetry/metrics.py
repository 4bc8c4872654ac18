"""Prometheus metrics of the proxy, in a registry of their own."""

from __future__ import annotations

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
)

TTFT_BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
DURATION_BUCKETS_S = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)


class Metrics:
    """`outcome` is a finish reason, an error code, or `abandoned` (the client left)."""

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        self.http_responses = Counter(
            "proxy_http_responses",
            "HTTP responses by route and status",
            ("route", "status"),
            registry=self.registry,
        )
        self.requests = Counter(
            "proxy_requests",
            "Generation requests by how they ended",
            ("model", "outcome"),
            registry=self.registry,
        )
        self.active = Gauge(
            "proxy_requests_active", "Generation requests under way", ("model",),
            registry=self.registry,
        )  # fmt: skip
        self.prompt_tokens = Counter(
            "proxy_prompt_tokens", "Prompt tokens, counted by the engine", ("model",),
            registry=self.registry,
        )  # fmt: skip
        self.completion_tokens = Counter(
            "proxy_completion_tokens", "Generated tokens, counted by the engine", ("model",),
            registry=self.registry,
        )  # fmt: skip
        self.ttft = Histogram(
            "proxy_time_to_first_token_seconds",
            "From the request to its first event",
            ("model",),
            buckets=TTFT_BUCKETS_S,
            registry=self.registry,
        )
        self.duration = Histogram(
            "proxy_request_duration_seconds",
            "From the request to its last event",
            ("model",),
            buckets=DURATION_BUCKETS_S,
            registry=self.registry,
        )
