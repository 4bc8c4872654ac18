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

                self.value = 0.0

            def increment(self, by: float) -> None:
                self.value += by

            def set(self, value: float) -> None:
                self.value = value

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


def test_metrics_of_one_family_differ_in_their_labels_and_gauges_are_exact():
    triton = Metrics()
    reporter = MetricReporter(triton, "demo_engine")
    shares = iter([0.1, 0.3, 0.7] + [0.2] * 10_000)
    for kind in ("a", "b"):
        reporter.add("GAUGE", "family", "", lambda: next(shares), {"kind": kind})
    reporter.start()
    eventually(lambda: triton.value(kind="a") == triton.value(kind="b") == 0.2, 10, "reported")
    reporter.close()
    assert sorted(triton.gone) == ["family", "metric of family", "metric of family"]


def reported(stats: Stats) -> dict[str, float]:
    """What NVIDIA's families have of these stats, by the label that says which value it is."""
    triton = Metrics()
    reporter = MetricReporter(triton, "demo")
    add_nvidias(reporter, stats, "demo_engine", "1")
    for labels in triton.labels():
        assert (labels.pop("model"), labels.pop("version")) == ("demo_engine", "1")
        assert set(labels) <= {"request_type", "kv_cache_block_type"}
    reporter.report()
    found = {kind: value for labels, value in triton.values() for kind in labels.values()}
    reporter.close()
    return found


def test_gateways_find_the_engines_load_under_nvidias_names():
    stats = Stats(
        most_rows=8, has_kv_blocks=True, kv_block_tokens=16, kv_blocks=40, kv_blocks_used=10
    )
    stats.rows_prefilling, stats.rows_decoding, stats.waiting = 1, 2, 5
    assert reported(stats) == {
        **{"waiting": 5, "scheduled": 3, "active": 3, "context": 1},
        **{"max": 40, "used": 10, "free": 30, "tokens_per": 16, "fraction": 0.25},
    }


def test_what_a_runtime_does_not_know_is_not_exported():
    assert reported(Stats(has_load=False)) == {}
    assert set(reported(Stats())) == {"waiting", "scheduled", "active", "context"}
