"""The answer on /metrics: Prometheus' text format, or OpenMetrics, which has exemplars, too."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator

from prometheus_client import CONTENT_TYPE_LATEST, Metric, generate_latest
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.registry import Collector

from proxy.telemetry.metrics import Metrics

OPEN_METRICS = "application/openmetrics-text"


class Exposition:
    """others: what any process can say at once."""

    def __init__(self, metrics: Metrics, *others: Collector) -> None:
        self._metrics = metrics
        self._others = others

    def exposed(self, accept: str) -> tuple[bytes, str]:
        """All metrics, and the media type. accept: what the client takes.

        Takes milliseconds, and tens of them with many tenants: not to be called by the event loop.
        """
        if OPEN_METRICS not in accept:
            return generate_latest(_Families(self._families())), CONTENT_TYPE_LATEST
        text: bytes = openmetrics.generate_latest(  # type: ignore[no-untyped-call]
            _Families(self._families())
        )
        return text, openmetrics.CONTENT_TYPE_LATEST

    def _families(self) -> list[Metric]:
        sources = (self._metrics.registry, *self._others)
        return [family for source in sources for family in source.collect()]


class _Families:
    """Between two families, other threads may have the interpreter, such as the event loop's."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        for family in self._families:
            yield family
            time.sleep(0)
