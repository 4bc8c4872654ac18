"""The engine's metrics are gone when `close` returns: Triton's stub crashes on any that remain."""

from __future__ import annotations

import weakref

from metrics import MetricReporter, add_nvidias
from stats import Stats
from tests.fixtures.stack import eventually

Key = tuple[str, frozenset[tuple[str, str]]]


class Metrics:
    """Triton's `pb_utils`, which notes what is reported and what is destroyed."""

    def __init__(self) -> None:
        self.gone: list[str] = []
        self.values: dict[Key, float] = {}
        outer = self

        class Metric:
            def __init__(self, name: str, labels: dict[str, str]) -> None:
                self._key = name, frozenset(labels.items())
                outer.values[self._key] = 0.0
                weakref.finalize(self, outer.gone.append, f"metric of {name}")

            def increment(self, by: float) -> None:
                outer.values[self._key] += by

            def set(self, value: float) -> None:
                outer.values[self._key] = value

        class MetricFamily:
            COUNTER, GAUGE = "counter", "gauge"

            def __init__(self, name: str, description: str, kind: str) -> None:
                self._name = name
                weakref.finalize(self, outer.gone.append, name)

            def Metric(self, labels: dict[str, str]) -> Metric:
                return Metric(self._name, labels)

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


def reported(stats: Stats) -> dict[tuple[str, str], float]:
    """What NVIDIA's families say of these stats, by family and the label that differs."""
    triton = Metrics()
    reporter = MetricReporter(triton, "demo")
    add_nvidias(reporter, stats, "demo_engine", "1")
    reporter.add("GAUGE", "last", "", lambda: 1)
    reporter.start()
    eventually(lambda: 1 in [v for (name, _), v in triton.values.items() if name == "last"], 10, "")
    reporter.close()
    found = {}
    for (family, labels), value in triton.values.items():
        kinds = {"nv_trt_llm_request_metrics": "request_type"}
        kind = kinds.get(family, "kv_cache_block_type")
        if family != "last":
            assert set(labels) > {("model", "demo_engine"), ("version", "1")}
            found[family.removeprefix("nv_trt_llm_"), dict(labels)[kind]] = value
    return found


def test_what_a_runtime_does_not_know_is_not_exported():
    assert reported(Stats(has_load=False)) == {}
    assert {kind for _, kind in reported(Stats())} == {"waiting", "scheduled", "active", "context"}
