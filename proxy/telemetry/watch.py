"""Watches a request's events and engine streams go by: counts and times them, for metrics and the
log line.
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
from triton_openai.proxy.telemetry import line
from triton_openai.proxy.telemetry.metrics import Metrics, observe_counts
from triton_openai.proxy.telemetry.pace import Pace, StreamPace


class Telemetry:
    """See domain.watcher.Watcher."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._children: dict[str, _Children] = {}

    def begin(self, request: GenerationRequest, card: ModelCard, delivery: Delivery) -> Watch:
        children = self._children.get(card.name)
        if children is None:
            children = self._children[card.name] = _Children(self._metrics, card.name)
        return Watch(request, card, delivery, self._metrics, children)

    def resent(self, card: ModelCard) -> None:
        """See triton_openai.proxy.generation.resending."""
        self._metrics.resent.labels(card.name).inc()
        line.count("resent")


class Watch:
    """One request. `events` passes its events on untouched."""

    def __init__(
        self,
        request: GenerationRequest,
        card: ModelCard,
        delivery: Delivery,
        metrics: Metrics,
        children: _Children,
    ) -> None:
        self._request = request
        self._card = card
        self._delivery = delivery
        self._metrics = metrics
        self._children = children
        self._pace = Pace()

    def stream(self, asked: EngineRequest) -> StreamPace:
        return self._pace.stream(asked)

    async def events(self, events: Events) -> Events:
        seen = _Seen()
        self._children.active.inc()
        try:
            async with aclosing(events):
                async for event in events:
                    seen.see(event)
                    yield event
        except Exception as error:
            seen.fail(error.code if isinstance(error, ProxyError) else "internal_error")
            raise
        finally:
            self._children.active.dec()
            self._metrics.requests.labels(self._card.name, seen.outcome).inc()
            self._settle(seen)

    def _settle(self, seen: _Seen) -> None:
        duration_s, queue_s = seen.elapsed_s(), self._pace.queue_s
        usage = self._delivery.usage  # however it ended, also by a disconnect; None: no token came
        self._children.settle(seen, usage, self._pace, duration_s)
        line.add(
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


class _Children:
    """One model's own counters: to look each up takes as long as to count."""

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

    def settle(self, seen: _Seen, usage: Usage | None, pace: Pace, duration_s: float) -> None:
        self.duration.observe(duration_s)
        if seen.ttft_s is not None:
            self.ttft.observe(seen.ttft_s)
        if usage is not None:
            self.prompt_tokens.inc(usage.prompt_tokens)
            self.cached_tokens.inc(usage.cached_tokens)
            self.completion_tokens.inc(usage.completion_tokens)
        for queue_s in pace.queues_s:
            self.queue.observe(queue_s)
        for token_s in pace.token_s:
            self.token_time.observe(token_s)
        observe_counts(self.gaps, pace.gaps, pace.gaps_s)


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
