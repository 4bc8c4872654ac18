"""How long requests and their engine streams took, and how many tokens they had, by model.

Made by `metrics`, filled by `model_metrics`.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Sequence

from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.samples import Exemplar

from proxy.domain.timeline import Trace
from proxy.telemetry.buckets import DURATION_BUCKETS_S, TOKEN_BUCKETS


class DistributionMetrics:
    """registry: of the process' other metrics."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._of_requests()
        self._of_streams()

    def _of_requests(self) -> None:
        self.ttft = self._histogram(
            "proxy_time_to_first_token_seconds", "From request to first event"
        )
        self.duration = self._histogram(
            "proxy_request_duration_seconds", "From request to last event"
        )
        self.request_queue = self._histogram(
            "proxy_request_queue_time_seconds",
            "Time that a request waited for a row, in the proxy and in the engine",
        )
        self.prompt_length = self._histogram(
            "proxy_request_prompt_tokens", "Prompt tokens of a request", TOKEN_BUCKETS
        )
        self.completion_length = self._histogram(
            "proxy_request_completion_tokens",
            "Generated tokens of a request, all its choices together",
            TOKEN_BUCKETS,
        )

    def _of_streams(self) -> None:
        self.queue = self._histogram(
            "proxy_queue_time_seconds",
            "Time that a stream waited for a row of the engine, if the engine reports it",
        )
        self.prefill = self._histogram(
            "proxy_prefill_time_seconds",
            "From a stream's row to its first token, if the engine reports it",
        )
        self.decode = self._histogram(
            "proxy_decode_time_seconds",
            "From a stream's first token to its last, if the engine reports it",
        )
        self.continuation_pause = self._histogram(
            "proxy_continuation_pause_seconds",
            "From the end of an engine stream to the first response of the one that continues it",
        )
        self.gaps = self._histogram(
            "proxy_inter_token_latency_seconds",
            "Time between two responses of an engine stream; each has at least one token",
        )
        self.token_time = self._histogram(
            "proxy_time_per_output_token_seconds",
            "Mean time of a stream's tokens after its first response",
        )

    def _histogram(
        self, name: str, text: str, buckets: tuple[float, ...] = DURATION_BUCKETS_S
    ) -> Histogram:
        return Histogram(name, text, ("model",), buckets=buckets, registry=self._registry)


def observe(histogram: Histogram, value: float, trace: Trace | None = None) -> None:
    """Costs the same for every value; the histogram's own method tries one bucket after another.

    trace: becomes the bucket's exemplar in OpenMetrics, in place of the last one.
    """
    bucket = histogram._buckets[bisect_left(histogram._upper_bounds, value)]
    histogram._sum.inc(value)
    bucket.inc(1)
    if trace is not None:
        bucket.set_exemplar(Exemplar({"trace_id": f"{trace.trace_id:032x}"}, value, time.time()))


def observe_counts(histogram: Histogram, counts: Sequence[int], total: float) -> None:
    """Adds values that are already counted for each of the histogram's buckets.

    prometheus_client itself takes values only one by one, which costs a microsecond each.
    """
    histogram._sum.inc(total)
    for bucket, count in zip(histogram._buckets, counts, strict=True):
        if count:
            bucket.inc(count)
