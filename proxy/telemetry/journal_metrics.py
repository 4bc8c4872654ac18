"""The metric of recorded requests. Made by `metrics`."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter


class JournalMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        self._records = Counter(
            "proxy_records",
            "Requests of tenants that are recorded, by what became of the record: `written`, or why"
            " not",
            ("outcome",),
            registry=registry,
        )

    def count(self, outcome: str) -> None:
        self._records.labels(outcome).inc()
