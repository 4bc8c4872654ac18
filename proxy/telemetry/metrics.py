"""Prometheus metrics of the proxy, in a registry of their own."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from functools import cache

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Metric,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.openmetrics import exposition as openmetrics

from proxy.domain.record import DURATION_BUCKETS_S
from proxy.domain.scheduling import QueueState
from proxy.telemetry.generation_metrics import GenerationMetrics, observe

TENANTS = 50
OPEN_METRICS = "application/openmetrics-text"
QUEUE_LABELS = ("queue",)  # `pool/Triton model`: as many as there are models


class Metrics:
    """tenants: as many have series of their own."""

    def __init__(self, *, tenants: int = TENANTS) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = registry = CollectorRegistry()

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(name, text, labels, registry=registry)

        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(name, text, labels, registry=registry)

        self.isolates_caches = gauge(
            "proxy_prefix_caches_isolated",
            "1 where each tenant has cached prefixes of its own, 0 where they are shared",
        )
        self.http_responses = counter(
            "proxy_http_responses", "HTTP responses by route and status", "route", "status"
        )
        self.rejections = counter(
            "proxy_rejections",
            "HTTP requests that got an error instead of an answer, by its code, without health "
            "checks. `model` is empty where the request did not reach one",
            "model",
            "reason",
        )
        self.limit_refusals = counter(
            "proxy_limit_refusals", "Requests that a caller's limit refused", "limit"
        )
        self.records = counter(
            "proxy_records",
            "Requests of tenants that are recorded, by what became of the record: `written`, or why"
            " not",
            "outcome",
        )
        self.authentications = counter(
            "proxy_authentications",
            "HTTP requests, WebSocket handshakes and messages that need a caller, by outcome: "
            "`ok`, or the code of the refusal",
            "outcome",
        )
        self.authentication_source_up = gauge(
            "proxy_authentication_source_up",
            "1 while the store of keys, or the issuer of tokens, answers",
            "source",
        )
        self.spans = counter(
            "proxy_trace_spans",
            "Spans of traces that the OTLP endpoint has taken (`exported`), or not (`failed`)",
            "outcome",
        )
        self.ledger_up = gauge(
            "proxy_ledger_up",
            "1 while the state of the callers' limits answers, and 0 for a minute after a failure",
        )
        self.unshared_proxies = gauge(
            "proxy_unshared_proxies",
            "Other proxies that wrote usage to the same store in the last minute, while this one "
            "has no LEDGER_URL, so that each grants the whole of every limit",
        )
        self.ready = gauge("proxy_ready", "1 while every model can be served")
        self.models_file_valid = gauge(
            "proxy_models_file_valid",
            "1 while models.yaml, as it was read last, is in force; 0: it was rejected",
        )
        self.loop_lag = Histogram(
            "proxy_event_loop_lag_seconds",
            "How late the event loop ran a timer; it is due every 50 ms",
            buckets=DURATION_BUCKETS_S,
            registry=registry,
        )
        self.generations = GenerationMetrics(registry, tenants=tenants)
        self.shadow = ShadowMetrics(registry)
        self.queues = QueueMetrics(registry)
        self.idempotency = IdempotencyMetrics(registry)
        self.batches = BatchMetrics(registry)

    def exposed(self, *, is_open: bool) -> tuple[bytes, str]:
        """All metrics, and the media type. is_open: in OpenMetrics, which has exemplars.

        Takes milliseconds, and tens of them with many tenants: not to be called by the event loop.
        """
        families = _Families(self.registry)
        if not is_open:
            return generate_latest(families), CONTENT_TYPE_LATEST
        text: bytes = openmetrics.generate_latest(families)  # type: ignore[no-untyped-call]
        return text, openmetrics.CONTENT_TYPE_LATEST


class ShadowOutcome(str, Enum):
    """COMPARED: both answers ended. DROPPED: never sent, since too many copies were running, or no
    row was free.

    FAILED: the copy raised an error. ABANDONED: the caller's answer ended early: its client
    disconnected, a stop string was complete, or it failed; or another stream got the copy's row.
    """

    COMPARED = "compared"
    DROPPED = "dropped"
    FAILED = "failed"
    ABANDONED = "abandoned"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShadowResult:
    """model: the public name. deployment: the shadow.

    is_comparable: equal engines give equal answers, since temperature is 0 or there is a seed.
    differences: of `text`, `finish_reason`, `prompt_tokens`, `completion_tokens`.
    """

    model: str
    deployment: str
    outcome: ShadowOutcome
    is_comparable: bool
    differences: tuple[str, ...] = ()


class ShadowMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        self._requests = Counter(
            "proxy_shadow_requests",
            "Copies of engine requests for shadow deployments, by outcome; comparable: temperature "
            "is 0, or there is a seed",
            ("model", "deployment", "outcome", "comparable"),
            registry=registry,
        )
        self._differences = Counter(
            "proxy_shadow_differences",
            "Compared answers that differ in this field",
            ("model", "deployment", "field", "comparable"),
            registry=registry,
        )

    def count(self, result: ShadowResult) -> None:
        where = result.model, result.deployment
        is_comparable = "true" if result.is_comparable else "false"
        self._requests.labels(*where, result.outcome.value, is_comparable).inc()
        if result.outcome is ShadowOutcome.COMPARED:
            for field in result.differences:
                self._differences.labels(*where, field, is_comparable).inc()


class QueueMetrics:
    """Of the fair queues. Implements scheduling.in_process.QueueCounter."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def gauge(name: str, text: str) -> Gauge:
            return Gauge(name, text, QUEUE_LABELS, registry=registry)

        self._waiting = gauge("proxy_fair_queue_waiting", "Streams that wait for a row")
        self._running = gauge("proxy_fair_queue_running", "Streams that run")
        self._capacity = gauge(
            "proxy_fair_queue_capacity", "Streams that may run at once; NaN where there is no bound"
        )
        waits = Histogram(
            "proxy_fair_queue_wait_seconds",
            "Time that a stream waited until it began, or was refused",
            QUEUE_LABELS,
            buckets=DURATION_BUCKETS_S,
            registry=registry,
        )
        self._waits = cache(waits.labels)
        self._refusals = Counter(
            "proxy_fair_queue_refusals",
            "Streams that got 429 `queue_full`: `full` (no place), `no_wait` (the request does not "
            "wait), `timeout`, `displaced` (a tenant with fewer streams took the place)",
            (*QUEUE_LABELS, "reason"),
            registry=registry,
        )
        self._preemptions = Counter(
            "proxy_fair_queue_preemptions",
            "Streams that gave their row to a higher class, or to a tenant with less service",
            QUEUE_LABELS,
            registry=registry,
        )
        self._known: set[str] = set()

    def waited(self, queue: str, seconds: float) -> None:
        observe(self._waits(queue), seconds)

    def refused(self, queue: str, reason: str, seconds: float) -> None:
        """reason: a value of scheduling.fair_queue.Refusal. seconds: that it waited."""
        self._refusals.labels(queue, reason).inc()
        observe(self._waits(queue), seconds)

    def preempted(self, queue: str) -> None:
        self._preemptions.labels(queue).inc()

    def counted(self, states: Iterable[QueueState]) -> None:
        """All queues that there are now; others are empty."""
        found = {one.queue: one for one in states}
        for queue in self._known - found.keys():
            self._waiting.labels(queue).set(0)
            self._running.labels(queue).set(0)
        self._known |= found.keys()
        for queue, one in found.items():
            self._waiting.labels(queue).set(one.waiting)
            self._running.labels(queue).set(one.running)
            bound = float("nan") if one.capacity is None else one.capacity
            self._capacity.labels(queue).set(bound)


class IdempotencyMetrics:
    """stored_bytes: kept for later; in Redis, by all proxies. held_bytes: of running answers."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._requests = Counter(
            "proxy_idempotent_requests",
            "Requests with an Idempotency-Key, by what they got: `generated`, `joined`, `replayed`,"
            " the code of a refusal, or `unavailable`; and `not_kept`: answers that could not be"
            " written",
            ("outcome",),
            registry=registry,
        )
        self.held_bytes = Gauge(
            "proxy_idempotent_held_bytes",
            "Bytes of answers in memory, for those who read them",
            registry=registry,
        )
        self.stored_bytes = Gauge(
            "proxy_idempotent_stored_bytes",
            "Bytes of answers that are kept for later requests with the same key",
            registry=registry,
        )

    def count(self, outcome: str) -> None:
        self._requests.labels(outcome).inc()


class BatchMetrics:
    """open: of all proxies that share the files."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.open = Gauge(
            "proxy_open_batches",
            "Batches that have not ended, of all proxies that share the files",
            registry=registry,
        )
        self.lines = Counter(
            "proxy_batch_lines",
            "Lines of batches that this proxy has ended: `completed`, `failed`, `cancelled`",
            ("outcome",),
            registry=registry,
        )


class _Families:
    """Between two families, other threads may have the interpreter, such as the event loop's."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    def collect(self) -> Iterator[Metric]:
        for family in self._registry.collect():
            yield family
            time.sleep(0)
