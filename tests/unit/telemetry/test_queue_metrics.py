from __future__ import annotations

import math

from prometheus_client import CollectorRegistry

from proxy.domain.scheduling import QueueState
from proxy.telemetry.metrics import QueueMetrics

QUEUE = "default/demo"


def test_queues_are_counted_and_one_that_is_gone_is_empty():
    registry = CollectorRegistry()
    metrics = QueueMetrics(registry)

    def value(name: str) -> float | None:
        return registry.get_sample_value(f"proxy_fair_queue_{name}", {"queue": QUEUE})

    metrics.counted([QueueState(queue=QUEUE, capacity=9, running=9, waiting=4)])
    assert [value(name) for name in ("capacity", "running", "waiting")] == [9, 9, 4]
    metrics.counted([QueueState(queue=QUEUE, capacity=None, running=1, waiting=0)])
    assert math.isnan(value("capacity"))
    metrics.counted([])
    assert [value(name) for name in ("running", "waiting")] == [0, 0]


def test_waits_refusals_and_preemptions_are_counted():
    registry = CollectorRegistry()
    metrics = QueueMetrics(registry)
    metrics.waited(QUEUE, 0.0)
    metrics.refused(QUEUE, "timeout", 30.0)
    metrics.preempted(QUEUE)

    def value(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(f"proxy_fair_queue_{name}", {"queue": QUEUE, **labels})

    assert value("refusals_total", reason="timeout") == 1
    assert value("preemptions_total") == 1
    assert value("wait_seconds_count") == 2
    assert value("wait_seconds_sum") == 30.0
