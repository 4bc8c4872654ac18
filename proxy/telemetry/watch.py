"""Watches a request's events go by: counts and times them, for metrics and the log line."""

from __future__ import annotations

import time
from contextlib import aclosing

from proxy.domain.delivery import Delivery
from proxy.domain.errors import ProxyError
from proxy.domain.events import Events, Finished, OutputEvent
from proxy.domain.model import ModelCard
from proxy.domain.output import Usage
from proxy.domain.request import GenerationRequest
from proxy.telemetry import line
from proxy.telemetry.metrics import Metrics


class Telemetry:
    """`watch` wraps the events of one request and passes them on untouched."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._children: dict[str, _Children] = {}

    async def watch(
        self, request: GenerationRequest, card: ModelCard, events: Events, delivery: Delivery
    ) -> Events:
        seen = _Seen()
        children = self._children.get(card.name)
        if children is None:
            children = self._children[card.name] = _Children(self._metrics, card.name)
        children.active.inc()
        try:
            async with aclosing(events):
                async for event in events:
                    seen.see(event)
                    yield event
        except Exception as error:
            seen.fail(error.code if isinstance(error, ProxyError) else "internal_error")
            raise
        finally:
            children.active.dec()
            self._metrics.requests.labels(card.name, seen.outcome).inc()
            self._settle(request, card, seen, delivery.usage, children)

    def _settle(
        self,
        request: GenerationRequest,
        card: ModelCard,
        seen: _Seen,
        usage: Usage | None,
        children: _Children,
    ) -> None:
        """`usage`: however the request ended, also when its client hung up; None: no token came."""
        duration_s = seen.elapsed_s()
        children.duration.observe(duration_s)
        if seen.ttft_s is not None:
            children.ttft.observe(seen.ttft_s)
        if usage is not None:
            children.prompt_tokens.inc(usage.prompt_tokens)
            children.cached_tokens.inc(usage.cached_tokens)
            children.completion_tokens.inc(usage.completion_tokens)
        line.add(
            id=request.id,
            model=card.name,
            finish=None if seen.has_failed else seen.outcome,
            prompt_tokens=usage and usage.prompt_tokens,
            cached_tokens=usage and usage.cached_tokens,
            completion_tokens=usage and usage.completion_tokens,
            ttft_ms=seen.ttft_s and round(seen.ttft_s * 1000, 1),
            inference_ms=round(duration_s * 1000, 1),
            user=request.user,
            safety_identifier=request.safety_identifier,
            metadata=dict(request.metadata) or None,
        )


class _Children:
    """One model's own counters: to look each up takes as long as to count."""

    def __init__(self, metrics: Metrics, model: str) -> None:
        self.active = metrics.active.labels(model)
        self.duration = metrics.duration.labels(model)
        self.ttft = metrics.ttft.labels(model)
        self.prompt_tokens = metrics.prompt_tokens.labels(model)
        self.cached_tokens = metrics.cached_tokens.labels(model)
        self.completion_tokens = metrics.completion_tokens.labels(model)


class _Seen:
    """What one request has shown so far. It counts as abandoned until it says otherwise."""

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
