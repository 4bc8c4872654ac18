"""Watches requests and their engine streams: counts and times them, for metrics and the log line.

Called by the service.
"""

from __future__ import annotations

import time
from http import HTTPStatus

from typing_extensions import Self

from proxy.domain.engine import EngineRequest
from proxy.domain.errors import ErrorCode, ProxyError
from proxy.domain.generation import Report
from proxy.domain.identity import current_caller
from proxy.domain.interrupt import Cause
from proxy.domain.model import ModelCard
from proxy.domain.output import FinishReason
from proxy.domain.request import GenerationRequest
from proxy.domain.timeline import Timeline, Trace, current_timeline
from proxy.telemetry import request_log
from proxy.telemetry.metrics import Metrics
from proxy.telemetry.model_metrics import ModelMetrics
from proxy.telemetry.request_figures import RequestFigures, Result
from proxy.telemetry.stream_latency import RequestLatency, StreamLatency
from proxy.telemetry.tenant_metrics import TenantMetrics

ABANDONED = "abandoned"  # the outcome of a request whose client disconnected


class TelemetryWatcher:
    """Implements domain.watcher.Watcher."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._models: dict[str, ModelMetrics] = {}

    def begin(self, request: GenerationRequest, card: ModelCard, report: Report) -> TelemetryWatch:
        model = self._models.get(card.name)
        if model is None:
            model = self._models[card.name] = ModelMetrics(self._metrics, card.name)
        return TelemetryWatch(request, card, report, model, self._metrics.tenants)

    def resent(self, card: ModelCard) -> None:
        """Counts a stream that generation.resending sends again."""
        self._metrics.resent.labels(card.name).inc()
        request_log.count("resent")

    def continued(self, card: ModelCard, cause: Cause, pause_s: float) -> None:
        """Counts a stream that generation.failover has continued."""
        self._metrics.continued.labels(card.name, cause.value, "continued").inc()
        self._metrics.distributions.continuation_pause.labels(card.name).observe(pause_s)
        request_log.count("continued")

    def not_continued(self, card: ModelCard, cause: Cause) -> None:
        self._metrics.continued.labels(card.name, cause.value, "failed").inc()


class TelemetryWatch:
    """Implements domain.watcher.RequestWatch for one request."""

    __slots__ = (
        *("_card", "_latency", "_model", "_report", "_request", "_started_at"),
        *("_tenant", "_tenants", "_timeline"),
    )

    def __init__(
        self,
        request: GenerationRequest,
        card: ModelCard,
        report: Report,
        model: ModelMetrics,
        tenants: TenantMetrics,
    ) -> None:
        self._request = request
        self._card = card
        self._report = report
        self._model = model
        self._tenants = tenants
        self._tenant = current_caller.get().tenant
        self._timeline = current_timeline.get()
        self._latency = RequestLatency()
        self._started_at = 0.0

    def stream(self, request: EngineRequest) -> StreamLatency:
        return self._latency.stream(request)

    def __enter__(self) -> Self:
        self._started_at = time.perf_counter()
        self._model.active.inc()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        figures = self._figures(time.perf_counter() - self._started_at, error)
        self._model.settle(figures)
        self._tenants.settle(self._tenant, figures)
        self._log(figures)

    def _figures(self, duration_s: float, error: BaseException | None) -> RequestFigures:
        report = self._report
        outcome, result = _ending(report.finish, error)
        waits_s = [each for each in (self._latency.queue_s, report.queue_s) if each is not None]
        return RequestFigures(
            outcome=outcome,
            result=result,
            duration_s=duration_s,
            first_event_s=report.first_event_s,
            queue_s=sum(waits_s) if waits_s else None,
            usage=report.usage,
            latency=self._latency,
            trace=_sampled(self._timeline),
        )

    def _log(self, figures: RequestFigures) -> None:
        """The code of a failure is in the line already."""
        request, usage = self._request, figures.usage
        ttft_s, queue_s = figures.first_event_s, figures.queue_s
        has_failed = figures.result in (Result.REFUSED, Result.FAILED)
        request_log.add(
            id=request.id,
            model=self._card.name,
            finish=None if has_failed else figures.outcome,
            prompt_tokens=usage and usage.prompt_tokens,
            cached_tokens=usage and usage.cached_tokens,
            completion_tokens=usage and usage.completion_tokens,
            ttft_ms=ttft_s and round(ttft_s * 1000, 1),
            queue_ms=None if queue_s is None else round(queue_s * 1000, 1),
            inference_ms=round((figures.duration_s - (queue_s or 0.0)) * 1000, 1),
            capped_priority=self._report.capped_priority,
            user=request.user,
            safety_identifier=request.safety_identifier,
            metadata=dict(request.metadata) or None,
        )


def _ending(finish: FinishReason | None, error: BaseException | None) -> tuple[str, Result]:
    """The outcome of a request, and what that is to its tenant."""
    if isinstance(error, Exception):
        code = error.code if isinstance(error, ProxyError) else ErrorCode.INTERNAL_ERROR
        is_ours = code.status >= HTTPStatus.INTERNAL_SERVER_ERROR
        return code.value, Result.FAILED if is_ours else Result.REFUSED
    if finish is None:
        return ABANDONED, Result.ABANDONED
    return finish.value, Result.COMPLETED


def _sampled(timeline: Timeline | None) -> Trace | None:
    """The trace of the request, if it is sampled."""
    trace = None if timeline is None else timeline.trace
    return trace if trace is not None and trace.is_sampled else None
