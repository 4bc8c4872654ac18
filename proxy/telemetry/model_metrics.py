"""The metrics with one model's label, kept because a lookup costs as much as counting.

Used by request_watcher.
"""

from __future__ import annotations

from prometheus_client import Counter

from proxy.domain.output import Usage
from proxy.telemetry.distribution_metrics import observe, observe_counts
from proxy.telemetry.metrics import Metrics
from proxy.telemetry.request_figures import RequestFigures
from proxy.telemetry.stream_latency import RequestLatency


class ModelMetrics:
    def __init__(self, metrics: Metrics, model: str) -> None:
        distributions = metrics.distributions
        self.active = metrics.active.labels(model)
        self._requests = metrics.requests
        self._model = model
        self._outcomes: dict[str, Counter] = {}
        self._duration = distributions.duration.labels(model)
        self._ttft = distributions.ttft.labels(model)
        self._prompt_tokens = metrics.prompt_tokens.labels(model)
        self._cached_tokens = metrics.cached_tokens.labels(model)
        self._completion_tokens = metrics.completion_tokens.labels(model)
        self._prompt_length = distributions.prompt_length.labels(model)
        self._completion_length = distributions.completion_length.labels(model)
        self._request_queue = distributions.request_queue.labels(model)
        self._queue = distributions.queue.labels(model)
        self._prefill = distributions.prefill.labels(model)
        self._decode = distributions.decode.labels(model)
        self._gaps = distributions.gaps.labels(model)
        self._token_time = distributions.token_time.labels(model)

    def settle(self, figures: RequestFigures) -> None:
        """Counts a request that has ended."""
        self.active.dec()
        self._outcome(figures.outcome).inc()
        observe(self._duration, figures.duration_s, figures.trace)
        if figures.first_event_s is not None:
            observe(self._ttft, figures.first_event_s, figures.trace)
        if (waited_s := figures.waited_s) is not None:
            observe(self._request_queue, waited_s)
        if figures.usage is not None:
            self._count(figures.usage)
        self._observe_streams(figures.latency)

    def _count(self, usage: Usage) -> None:
        self._prompt_tokens.inc(usage.prompt_tokens)
        if usage.cached_tokens:
            self._cached_tokens.inc(usage.cached_tokens)
        self._completion_tokens.inc(usage.completion_tokens)
        observe(self._prompt_length, usage.prompt_tokens)
        observe(self._completion_length, usage.completion_tokens)

    def _observe_streams(self, latency: RequestLatency) -> None:
        for queue_s in latency.queues_s:
            observe(self._queue, queue_s)
        for times in latency.times:
            observe(self._prefill, times.prefill_s)
            observe(self._decode, times.decode_s)
        for token_s in latency.token_s:
            observe(self._token_time, token_s)
        observe_counts(self._gaps, latency.gaps, latency.gaps_s)

    def _outcome(self, outcome: str) -> Counter:
        counter = self._outcomes.get(outcome)
        if counter is None:
            counter = self._outcomes[outcome] = self._requests.labels(self._model, outcome)
        return counter
