"""Prometheus metrics of the proxy, in a registry of their own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.multiprocess import MultiProcessCollector

from triton_openai.proxy.telemetry.idempotency_metrics import IdempotencyMetrics
from triton_openai.proxy.telemetry.journal_metrics import JournalMetrics
from triton_openai.proxy.telemetry.queue_metrics import QueueMetrics
from triton_openai.proxy.telemetry.shadow_metrics import ShadowMetrics
from triton_openai.proxy.telemetry.stream_latency import GAP_BUCKETS_S

TTFT_BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
QUEUE_BUCKETS_S = (0.001, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
LOOP_LAG_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5)
DURATION_BUCKETS_S = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)


class Metrics:
    """The label `outcome` is a finish reason, an error code, or `abandoned` (client disconnected).

    shared: a folder in which several processes keep their counts, to expose them as one.
    prometheus_client also needs it in PROMETHEUS_MULTIPROC_DIR, before it is imported.
    """

    def __init__(self, shared: Path | None = None) -> None:
        self._shared = shared
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        self._count_requests()
        self._count_tokens()
        self._watch_authentication()
        self._time_requests()
        self._watch_the_process()
        self.shadow = ShadowMetrics(self.registry)
        self.queues = QueueMetrics(self.registry)
        self.idempotency = IdempotencyMetrics(self.registry)
        self.journal = JournalMetrics(self.registry)

    def _count_requests(self) -> None:
        self.http_responses = self._counter(
            "proxy_http_responses", "HTTP responses by route and status", "route", "status"
        )
        self.requests = self._counter(
            "proxy_requests", "Generation requests by how they ended", "model", "outcome"
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
            multiprocess_mode="livesum",
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
            multiprocess_mode="livemin",
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

    def count_limit_refusal(self, limit: str) -> None:
        """limit: its name, such as `key.requests_per_minute`."""
        self.limit_refusals.labels(limit).inc()

    def _watch_the_process(self) -> None:
        self.ledger_up = Gauge(
            "proxy_ledger_up",
            "1 while the state of the callers' limits can be reached",
            registry=self.registry,
            multiprocess_mode="livemin",
        )
        self.ledger_up.set(1)
        self.ready = Gauge(
            "proxy_ready",
            "1 while every model can be served",
            registry=self.registry,
            multiprocess_mode="livemin",
        )
        self.models_file_valid = Gauge(
            "proxy_models_file_valid",
            "1 while models.yaml, as it was read last, is in force; 0: it was rejected",
            registry=self.registry,
            multiprocess_mode="livemin",
        )
        self.loop_lag = Histogram(
            "proxy_event_loop_lag_seconds",
            "How late the event loop ran a timer; it is due every 50 ms",
            buckets=LOOP_LAG_BUCKETS_S,
            registry=self.registry,
        )

    def _time_requests(self) -> None:
        self.ttft = self._histogram(
            "proxy_time_to_first_token_seconds", "From request to first event", TTFT_BUCKETS_S
        )
        self.duration = self._histogram(
            "proxy_request_duration_seconds", "From request to last event", DURATION_BUCKETS_S
        )
        self.queue = self._histogram(
            "proxy_queue_time_seconds",
            "Time that a stream waited for a row of the engine, if the engine reports it",
            QUEUE_BUCKETS_S,
        )
        self.continuation_pause = self._histogram(
            "proxy_continuation_pause_seconds",
            "From the end of an engine stream to the first response of the one that continues it",
            QUEUE_BUCKETS_S,
        )
        self.gaps = self._histogram(
            "proxy_inter_token_latency_seconds",
            "Time between two responses of an engine stream; each has at least one token",
            GAP_BUCKETS_S,
        )
        self.token_time = self._histogram(
            "proxy_time_per_output_token_seconds",
            "Mean time of a stream's tokens after its first response",
            GAP_BUCKETS_S,
        )

    def exposed(self) -> bytes:
        """The metrics of all processes, in Prometheus' text format."""
        if self._shared is None:
            return generate_latest(self.registry)
        registry = CollectorRegistry()
        MultiProcessCollector(registry, str(self._shared))  # type: ignore[no-untyped-call]
        return generate_latest(registry)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(name, text, labels, registry=self.registry)

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
        return Histogram(name, text, ("model",), buckets=buckets, registry=self.registry)


def observe_counts(histogram: Histogram, counts: Sequence[int], total: float) -> None:
    """Adds values that are already counted for each of the histogram's buckets.

    prometheus_client itself takes values only one by one, which costs a microsecond each.
    """
    histogram._sum.inc(total)
    for bucket, count in zip(histogram._buckets, counts, strict=True):
        if count:
            bucket.inc(count)
