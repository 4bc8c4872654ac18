"""Metrics of shadow traffic. Made by `metrics`."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter

from proxy.domain.shadow import ShadowOutcome, ShadowResult


class ShadowMetrics:
    """Implements domain.shadow.ShadowCounter."""

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
