"""Counts and times a request's events and engine streams, for metrics and the request's log line.

Made by `app`, used by the generation service through the port domain.watcher.
"""

from __future__ import annotations

import time
from contextlib import aclosing

from triton_openai.proxy.domain.delivery import Delivery
from triton_openai.proxy.domain.engine import EngineRequest
from triton_openai.proxy.domain.errors import ProxyError
from triton_openai.proxy.domain.events import Events, Finished, OutputEvent
from triton_openai.proxy.domain.model import ModelCard
from triton_openai.proxy.domain.output import Usage
from triton_openai.proxy.domain.request import GenerationRequest
from triton_openai.proxy.telemetry import request_log
from triton_openai.proxy.telemetry.metrics import Metrics, observe_counts
from triton_openai.proxy.telemetry.stream_latency import RequestLatency, StreamLatency


class TelemetryWatcher:
    """Implements domain.watcher.Watcher."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._by_model: dict[str, _ModelMetrics] = {}

    def begin(
        self, request: GenerationRequest, card: ModelCard, delivery: Delivery
    ) -> TelemetryWatch:
        model_metrics = self._by_model.get(card.name)
        if model_metrics is None:
            model_metrics = self._by_model[card.name] = _ModelMetrics(self._metrics, card.name)
        return TelemetryWatch(request, card, delivery, self._metrics, model_metrics)

    def resent(self, card: ModelCard) -> None:
        """Counts a stream that generation.resending sends again."""
        self._metrics.resent.labels(card.name).inc()
        request_log.count("resent")


class TelemetryWatch:
    """Implements domain.watcher.RequestWatch for one request; its events pass unchanged."""

    def __init__(
        self,
        request: GenerationRequest,
        card: ModelCard,
        delivery: Delivery,
        metrics: Metrics,
        model_metrics: _ModelMetrics,
    ) -> None:
        self._request = request
        self._card = card
        self._delivery = delivery
        self._metrics = metrics
        self._model_metrics = model_metrics
        self._latency = RequestLatency()

    def stream(self, asked: EngineRequest) -> StreamLatency:
        return self._latency.stream(asked)

    async def events(self, events: Events) -> Events:
        seen = _Progress()
        self._model_metrics.active.inc()
        try:
            async with aclosing(events):
                async for event in events:
                    seen.see(event)
                    yield event
        except Exception as error:
            seen.fail(error.code if isinstance(error, ProxyError) else "internal_error")
            raise
        finally:
            self._model_metrics.active.dec()
            self._metrics.requests.labels(self._card.name, seen.outcome).inc()
            self._settle(seen)

    def _settle(self, seen: _Progress) -> None:
        duration_s, queue_s = seen.elapsed_s(), self._latency.queue_s
        usage = self._delivery.usage  # complete even after a disconnect; None: no token came
        self._model_metrics.settle(seen, usage, self._latency, duration_s)
        request_log.add(
            id=self._request.id,
            model=self._card.name,
            finish=None if seen.has_failed else seen.outcome,
            prompt_tokens=usage and usage.prompt_tokens,
            cached_tokens=usage and usage.cached_tokens,
            completion_tokens=usage and usage.completion_tokens,
            ttft_ms=seen.ttft_s and round(seen.ttft_s * 1000, 1),
            queue_ms=None if queue_s is None else round(queue_s * 1000, 1),
            inference_ms=round((duration_s - (queue_s or 0.0)) * 1000, 1),
            user=self._request.user,
            safety_identifier=self._request.safety_identifier,
            metadata=dict(self._request.metadata) or None,
        )


class _ModelMetrics:
    """The metrics with one model's label, kept because a lookup costs as much as counting."""

    def __init__(self, metrics: Metrics, model: str) -> None:
        self.active = metrics.active.labels(model)
        self.duration = metrics.duration.labels(model)
        self.ttft = metrics.ttft.labels(model)
        self.prompt_tokens = metrics.prompt_tokens.labels(model)
        self.cached_tokens = metrics.cached_tokens.labels(model)
        self.completion_tokens = metrics.completion_tokens.labels(model)
        self.queue = metrics.queue.labels(model)
        self.gaps = metrics.gaps.labels(model)
        self.token_time = metrics.token_time.labels(model)

    def settle(
        self, seen: _Progress, usage: Usage | None, latency: RequestLatency, duration_s: float
    ) -> None:
        self.duration.observe(duration_s)
        if seen.ttft_s is not None:
            self.ttft.observe(seen.ttft_s)
        if usage is not None:
            self.prompt_tokens.inc(usage.prompt_tokens)
            self.cached_tokens.inc(usage.cached_tokens)
            self.completion_tokens.inc(usage.completion_tokens)
        for queue_s in latency.queues_s:
            self.queue.observe(queue_s)
        for token_s in latency.token_s:
            self.token_time.observe(token_s)
        observe_counts(self.gaps, latency.gaps, latency.gaps_s)


class _Progress:
    """How far a request has come. Its outcome is `abandoned` until it finishes or fails."""

    def __init__(self) -> None:
        self._started_at = time.perf_counter()
        self.outcome = "abandoned"
        self.has_failed = False
        self.ttft_s: float | None = None

    def elapsed_s(self) -> float:
        return time.perf_counter() - self._started_at

    def fail(self, code: str) -> None:
        self.outcome = code
        self.has_failed = True

    def see(self, event: OutputEvent) -> None:
        if self.ttft_s is None:
            self.ttft_s = self.elapsed_s()
        if isinstance(event, Finished):
            self.outcome = event.reason.value
