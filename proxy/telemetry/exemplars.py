"""Exemplars: the trace of the last sampled request in each bucket of a histogram.

prometheus_client keeps none where several processes share their metrics, so they are kept here, by
each process for its own requests. Read by `exposition`.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Mapping

from prometheus_client.samples import Exemplar
from prometheus_client.utils import INF, floatToGoString

from triton_openai.proxy.telemetry.buckets import DURATION_BUCKETS_S

BOUNDS: list[str] = [
    floatToGoString(bound)  # type: ignore[no-untyped-call]
    for bound in (*DURATION_BUCKETS_S, INF)
]


class Exemplars:
    """For histograms over DURATION_BUCKETS_S whose one label is `model`."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str, str], Exemplar] = {}

    def note(self, family: str, model: str, seconds: float, trace_id: int) -> None:
        bound = BOUNDS[bisect_left(DURATION_BUCKETS_S, seconds)]
        labels = {"trace_id": f"{trace_id:032x}"}
        self._found[family, model, bound] = Exemplar(labels, seconds, time.time())

    def of(self, family: str, labels: Mapping[str, str]) -> Exemplar | None:
        """For one sample of the family."""
        return self._found.get((family, labels.get("model", ""), labels.get("le", "")))
