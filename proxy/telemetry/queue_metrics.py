"""Metrics of the fair queues. Implements scheduling.in_process' port."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from proxy.domain.record import DURATION_BUCKETS_S
from proxy.domain.scheduling import QueueState

LABELS = ("queue",)  # `pool/Triton model`: as many as there are models


class QueueMetrics:
    """registry: of the process' other metrics."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def gauge(name: str, text: str) -> Gauge:
            return Gauge(name, text, LABELS, registry=registry)

        self._waiting = gauge("proxy_fair_queue_waiting", "Streams that wait for a row")
        self._running = gauge("proxy_fair_queue_running", "Streams that run")
        self._capacity = gauge(
            "proxy_fair_queue_capacity", "Streams that may run at once; NaN where there is no bound"
        )
        self._waits = Histogram(
            "proxy_fair_queue_wait_seconds",
            "Time that a stream waited until it began, or was refused",
            LABELS,
            buckets=DURATION_BUCKETS_S,
            registry=registry,
        )
        self._refusals = Counter(
            "proxy_fair_queue_refusals",
            "Streams that got 429 `queue_full`: `full` (no place), `no_wait` (the request does not "
            "wait), `timeout`, `displaced` (a tenant with fewer streams took the place)",
            (*LABELS, "reason"),
            registry=registry,
        )
        self._preemptions = Counter(
            "proxy_fair_queue_preemptions",
            "Streams that gave their row to a higher class, or to a tenant with less service",
            LABELS,
            registry=registry,
        )
        self._known: set[str] = set()

    def waited(self, queue: str, seconds: float) -> None:
        self._waits.labels(queue).observe(seconds)

    def refused(self, queue: str, reason: str, seconds: float) -> None:
        """reason: a value of scheduling.fair_queue.Refusal. seconds: that it waited."""
        self._refusals.labels(queue, reason).inc()
        self._waits.labels(queue).observe(seconds)

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
