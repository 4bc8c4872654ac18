"""Decides which requests are traced, and hands their spans to OpenTelemetry's exporter.

Nothing is written before a request has ended. Kept are sampled requests, and also those that were
slow or failed; of the latter, Triton has no spans of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from typing_extensions import Self

from triton_openai.proxy.domain.errors import ErrorCode
from triton_openai.proxy.domain.timeline import SPAN_BITS, TRACE_BITS, Timeline, Trace, new_id
from triton_openai.proxy.telemetry.request_log import HEALTH_CHECKS, Headers
from triton_openai.proxy.telemetry.traces.configuration import TraceConfiguration
from triton_openai.proxy.telemetry.traces.spans import RequestSpans
from triton_openai.proxy.telemetry.traces.trace_context import CallersTrace, callers_trace

FIRST_FAULT_STATUS = 500
SAMPLING_BITS = 64  # the lower half of a trace id, as OpenTelemetry's own sampler does it
UNTRACED = ("/metrics", HEALTH_CHECKS)
STATUSES = {code.value: code.status for code in ErrorCode}


class SpanQueue(Protocol):
    """See export.SpanExport."""

    def add(self, span: ReadableSpan) -> None: ...

    def close(self) -> None:
        """Blocks while it exports what is left."""
        ...


class Tracing:
    """Implements request_log.RequestObserver. `async with` exports what is left at its end.

    slow_s: a request that takes longer is kept.
    """

    def __init__(
        self,
        configuration: TraceConfiguration,
        queue: Callable[[], SpanQueue],
        resource: Resource,
        *,
        slow_s: float,
    ) -> None:
        self._configuration = configuration
        self._bound = int(configuration.ratio * (1 << SAMPLING_BITS))
        self._make_queue = queue
        self._resource = resource
        self._slow_s = slow_s
        self._queue: SpanQueue | None = None

    async def __aenter__(self) -> Self:
        self._queue = self._make_queue()
        return self

    async def __aexit__(self, *_: object) -> None:
        queue, self._queue = self._queue, None
        if queue is not None:
            await asyncio.to_thread(queue.close)

    def trace(self, headers: Headers) -> Trace:
        """As RequestObserver."""
        configuration = self._configuration
        caller = callers_trace(headers) if configuration.propagates else None
        trace_id = new_id(TRACE_BITS) if caller is None else caller.trace_id
        return Trace(
            trace_id=trace_id,
            span_id=new_id(SPAN_BITS),
            parent_id=None if caller is None else caller.span_id,
            is_sampled=self._is_sampled(trace_id, caller),
            state="" if caller is None else caller.state,
        )

    def ended(self, timeline: Timeline, line: Mapping[str, Any]) -> None:
        """As RequestObserver."""
        trace, queue = timeline.trace, self._queue
        if trace is None or queue is None or str(line.get("path", "")).startswith(UNTRACED):
            return
        has_failed = _has_failed(line)
        if not (trace.is_sampled or has_failed or timeline.duration_s > self._slow_s):
            return
        spans = RequestSpans(timeline, trace, line, self._resource).all(has_failed=has_failed)
        for span in spans:
            queue.add(span)

    def _is_sampled(self, trace_id: int, caller: CallersTrace | None) -> bool:
        if caller is not None and self._configuration.follows_callers:
            return caller.is_sampled
        return trace_id & ((1 << SAMPLING_BITS) - 1) < self._bound


def _has_failed(line: Mapping[str, Any]) -> bool:
    """By a fault that is not the caller's. A stream that broke off has status 200, and an error."""
    status = STATUSES.get(line.get("error", ""), line.get("status", 0))
    return bool(status >= FIRST_FAULT_STATUS)
