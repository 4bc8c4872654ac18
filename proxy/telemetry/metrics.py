"""Prometheus metrics of the proxy, in a registry of their own."""

from __future__ import annotations

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
)

from proxy.telemetry.bounded_names import BoundedNames
from proxy.telemetry.buckets import DURATION_BUCKETS_S
from proxy.telemetry.distribution_metrics import DistributionMetrics
from proxy.telemetry.idempotency_metrics import IdempotencyMetrics
from proxy.telemetry.journal_metrics import JournalMetrics
from proxy.telemetry.queue_metrics import QueueMetrics
from proxy.telemetry.shadow_metrics import ShadowMetrics
from proxy.telemetry.tenant_metrics import TenantMetrics

TENANTS = 50


class Metrics:
    """The label `outcome` is a finish reason, an error code, or `abandoned` (client disconnected).

    tenants: as many have series of their own.
    """

    def __init__(self, *, tenants: int = TENANTS) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        self._count_requests()
        self._count_tokens()
        self._watch_authentication()
        self._watch_the_process()
        self.distributions = DistributionMetrics(self.registry)
        self.shadow = ShadowMetrics(self.registry)
        self.queues = QueueMetrics(self.registry)
        self.idempotency = IdempotencyMetrics(self.registry)
        self.tenants = TenantMetrics(self.registry, BoundedNames(tenants))
        self.journal = JournalMetrics(self.registry)

    def _count_requests(self) -> None:
        self.http_responses = self._counter(
            "proxy_http_responses", "HTTP responses by route and status", "route", "status"
        )
        self.requests = self._counter(
            "proxy_requests", "Generation requests by how they ended", "model", "outcome"
        )
        self.rejections = self._counter(
            "proxy_rejections",
            "HTTP requests that got an error instead of an answer, by its code, without health "
            "checks. `model` is empty where the request did not reach one",
            *("model", "reason"),
        )
        self.limit_refusals = self._counter(
            "proxy_limit_refusals", "Requests that a caller's limit refused", "limit"
        )
        self.resent = self._counter(
            "proxy_requests_resent",
            "Streams that failed before their first token and were sent to Triton again",
            "model",
        )
        self.continued = self._counter(
            "proxy_streams_continued",
            "Streams that lost their engine after their first token, by what ended it (`lost`, "
            "`stalled`, `drained`, `preempted`) and whether another engine stream `continued` them",
            *("model", "cause", "result"),
        )
        self.active = Gauge(
            "proxy_requests_active",
            "Generation requests in progress",
            ("model",),
            registry=self.registry,
        )

    def _watch_authentication(self) -> None:
        self.authentications = self._counter(
            "proxy_authentications",
            "HTTP requests, WebSocket handshakes and messages that need a caller, by outcome: "
            "`ok`, or the code of the refusal",
            "outcome",
        )
        self.authentication_source_up = Gauge(
            "proxy_authentication_source_up",
            "1 while the store of keys, or the issuer of tokens, answers",
            ("source",),
            registry=self.registry,
        )

    def _count_tokens(self) -> None:
        self.prompt_tokens = self._counter(
            "proxy_prompt_tokens", "Prompt tokens, counted by the engine", "model"
        )
        self.cached_tokens = self._counter(
            "proxy_cached_prompt_tokens",
            "Prompt tokens that the engine took from its prefix cache",
            "model",
        )
        self.completion_tokens = self._counter(
            "proxy_completion_tokens", "Generated tokens, counted by the engine", "model"
        )

    def count_spans(self, outcome: str, spans: int) -> None:
        """outcome: `exported` or `failed`."""
        self.spans.labels(outcome).inc(spans)

    def count_limit_refusal(self, limit: str) -> None:
        """limit: its name, such as `key.requests_per_minute`."""
        self.limit_refusals.labels(limit).inc()

    def _watch_the_process(self) -> None:
        self.spans = self._counter(
            "proxy_trace_spans",
            "Spans of traces that the OTLP endpoint has taken (`exported`), or not (`failed`)",
            "outcome",
        )
        self.ledger_up = Gauge(
            "proxy_ledger_up",
            "1 while the state of the callers' limits answers, and 0 for a minute after a failure",
            registry=self.registry,
        )
        self.unshared_proxies = Gauge(
            "proxy_unshared_proxies",
            "Other proxies that wrote usage to the same store in the last minute, while this one "
            "has no LEDGER_URL, so that each grants the whole of every limit",
            registry=self.registry,
        )
        self.ready = Gauge(
            "proxy_ready",
            "1 while every model can be served",
            registry=self.registry,
        )
        self.models_file_valid = Gauge(
            "proxy_models_file_valid",
            "1 while models.yaml, as it was read last, is in force; 0: it was rejected",
            registry=self.registry,
        )
        self.loop_lag = Histogram(
            "proxy_event_loop_lag_seconds",
            "How late the event loop ran a timer; it is due every 50 ms",
            buckets=DURATION_BUCKETS_S,
            registry=self.registry,
        )

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(name, text, labels, registry=self.registry)
