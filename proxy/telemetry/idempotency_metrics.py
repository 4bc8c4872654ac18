"""Metrics of requests with an Idempotency-Key. Made by `metrics`."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge


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
