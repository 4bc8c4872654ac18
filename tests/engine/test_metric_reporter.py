"""The engine's metrics are gone when `close` returns: Triton's stub crashes on any that remain."""

from __future__ import annotations

import weakref

from metric_reporter import MetricReporter


class Metrics:
    """Triton's `pb_utils`, which notes what is destroyed."""

    def __init__(self) -> None:
        self.gone: list[str] = []
        outer = self

        class Metric:
            def __init__(self, name: str) -> None:
                weakref.finalize(self, outer.gone.append, f"metric of {name}")

            def increment(self, by: float) -> None:
                """Counts nothing."""

        class MetricFamily:
            COUNTER, GAUGE = "counter", "gauge"

            def __init__(self, name: str, description: str, kind: str) -> None:
                self._name = name
                weakref.finalize(self, outer.gone.append, name)

            def Metric(self, labels: dict[str, str]) -> Metric:
                return Metric(self._name)

        self.MetricFamily = MetricFamily


def test_metrics_are_destroyed_at_the_close_before_their_families():
    triton = Metrics()
    reporter = MetricReporter(triton, "demo_engine")
    reporter.add("COUNTER", "a", "", lambda: 1)
    reporter.add("GAUGE", "b", "", lambda: 1)
    reporter.start()
    assert triton.gone == []
    reporter.close()
    assert set(triton.gone[:2]) == {"metric of a", "metric of b"}
    assert set(triton.gone[2:]) == {"a", "b"}
