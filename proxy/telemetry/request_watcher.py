"""Watches requests and their engine streams: counts and times them, for metrics and the log line.

Called by the service.
"""

from __future__ import annotations

import time

from prometheus_client import Counter
from typing_extensions import Self

from triton_openai.proxy.domain.engine import EngineRequest
from triton_openai.proxy.domain.errors import ErrorCode, ProxyError
from triton_openai.proxy.domain.generation import Report
from triton_openai.proxy.domain.interrupt import Cause
from triton_openai.proxy.domain.model import ModelCard
from triton_openai.proxy.domain.output import Usage
from triton_openai.proxy.domain.request import GenerationRequest
from triton_openai.proxy.telemetry import request_log
from triton_openai.proxy.telemetry.metrics import Metrics, observe_counts
from triton_openai.proxy.telemetry.stream_latency import RequestLatency, StreamLatency

ABANDONED = "abandoned"  # the outcome of a request whose client disconnected


class TelemetryWatcher:
    """Implements domain.watcher.Watcher."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._children: dict[str, _ModelMetrics] = {}

    def begin(self, request: GenerationRequest, card: ModelCard, report: Report) -> TelemetryWatch:
        children = self._children.get(card.name)
        if children is None:
            children = self._children[card.name] = _ModelMetrics(self._metrics, card.name)
        return TelemetryWatch(request, card, report, children)

    def resent(self, card: ModelCard) -> None:
        """Counts a stream that generation.resending sends again."""
        self._metrics.resent.labels(card.name).inc()
        request_log.count("resent")

    def continued(self, card: ModelCard, cause: Cause, pause_s: float) -> None:
        """Counts a stream that generation.failover has continued."""
        self._metrics.continued.labels(card.name, cause.value, "continued").inc()
        self._metrics.continuation_pause.labels(card.name).observe(pause_s)
        request_log.count("continued")

    def not_continued(self, card: ModelCard, cause: Cause) -> None:
        self._metrics.continued.labels(card.name, cause.value, "failed").inc()


class TelemetryWatch:
    """Implements domain.watcher.RequestWatch for one request."""

    __slots__ = ("_card", "_children", "_latency", "_report", "_request", "_started_at")

    def __init__(
        self, request: GenerationRequest, card: ModelCard, report: Report, children: _ModelMetrics
    ) -> None:
        self._request = request
        self._card = card
        self._report = report
        self._children = children
        self._latency = RequestLatency()
        self._started_at = 0.0

    def stream(self, request: EngineRequest) -> StreamLatency:
        return self._latency.stream(request)

    def __enter__(self) -> Self:
        self._started_at = time.perf_counter()
        self._children.active.inc()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        duration_s = time.perf_counter() - self._started_at
        finish = None if self._report.finish is None else self._report.finish.value
        outcome = finish or ABANDONED
        if isinstance(error, Exception):
            code = error.code if isinstance(error, ProxyError) else ErrorCode.INTERNAL_ERROR
            outcome, finish = code.value, None
        elif finish is None:
            finish = ABANDONED
        usage = self._report.usage  # None: no token came
        self._children.settle(outcome, self._report, usage, self._latency, duration_s)
        self._log(finish, usage, duration_s)

    def _log(self, finish: str | None, usage: Usage | None, duration_s: float) -> None:
        """`finish`: None for a failure, whose code the line has already."""
        request, ttft_s = self._request, self._report.first_event_s
        waits_s = [
            each for each in (self._latency.queue_s, self._report.queue_s) if each is not None
        ]
        queue_s = sum(waits_s) if waits_s else None  # in the engine, and in the proxy before it
        request_log.add(
            id=request.id,
            model=self._card.name,
            finish=finish,
            prompt_tokens=usage and usage.prompt_tokens,
            cached_tokens=usage and usage.cached_tokens,
            completion_tokens=usage and usage.completion_tokens,
            ttft_ms=ttft_s and round(ttft_s * 1000, 1),
            queue_ms=None if queue_s is None else round(queue_s * 1000, 1),
            inference_ms=round((duration_s - (queue_s or 0.0)) * 1000, 1),
            capped_priority=self._report.capped_priority,
            user=request.user,
            safety_identifier=request.safety_identifier,
            metadata=dict(request.metadata) or None,
        )


class _ModelMetrics:
    """The metrics with one model's label, kept because a lookup costs as much as counting."""

    def __init__(self, metrics: Metrics, model: str) -> None:
        self.active = metrics.active.labels(model)
        self._requests = metrics.requests
        self._model = model
        self._outcomes: dict[str, Counter] = {}
        self._duration = metrics.duration.labels(model)
        self._ttft = metrics.ttft.labels(model)
        self._prompt_tokens = metrics.prompt_tokens.labels(model)
        self._cached_tokens = metrics.cached_tokens.labels(model)
        self._completion_tokens = metrics.completion_tokens.labels(model)
        self._queue = metrics.queue.labels(model)
        self._gaps = metrics.gaps.labels(model)
        self._token_time = metrics.token_time.labels(model)

    def settle(
        self,
        outcome: str,
        report: Report,
        usage: Usage | None,
        latency: RequestLatency,
        duration_s: float,
    ) -> None:
        self.active.dec()
        self._outcome(outcome).inc()
        self._duration.observe(duration_s)
        if report.first_event_s is not None:
            self._ttft.observe(report.first_event_s)
        if usage is not None:
            self._prompt_tokens.inc(usage.prompt_tokens)
            if usage.cached_tokens:
                self._cached_tokens.inc(usage.cached_tokens)
            self._completion_tokens.inc(usage.completion_tokens)
        for queue_s in latency.queues_s:
            self._queue.observe(queue_s)
        for token_s in latency.token_s:
            self._token_time.observe(token_s)
        observe_counts(self._gaps, latency.gaps, latency.gaps_s)

    def _outcome(self, outcome: str) -> Counter:
        counter = self._outcomes.get(outcome)
        if counter is None:
            counter = self._outcomes[outcome] = self._requests.labels(self._model, outcome)
        return counter
