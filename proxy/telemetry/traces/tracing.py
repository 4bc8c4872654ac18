"""Decides which requests are traced, and hands their spans to OpenTelemetry's exporter.

Nothing is written before a request has ended. Kept are sampled requests, and also those that were
slow or failed; of the latter, Triton has no spans of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

import structlog
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from typing_extensions import Self

from proxy.domain.errors import ErrorCode
from proxy.domain.timeline import (
    SPAN_BITS,
    TRACE_BITS,
    Exchange,
    Timeline,
    Trace,
    new_id,
)
from proxy.telemetry.held_bytes import HeldBytes
from proxy.telemetry.request_log import HEALTH_CHECKS, Headers
from proxy.telemetry.traces.configuration import TraceConfiguration
from proxy.telemetry.traces.messages import content_of
from proxy.telemetry.traces.spans import RequestSpans
from proxy.telemetry.traces.trace_context import CallersTrace, callers_trace

REPORT = "report it with this traceback; the request was answered"
FIRST_FAULT_STATUS = 500
MOST_CONTENT = 64_000_000  # bytes of requests and answers that run, or wait to be written
SAMPLING_BITS = 64  # the lower half of a trace id, as OpenTelemetry's own sampler does it
UNTRACED = ("/metrics", HEALTH_CHECKS)
logger = structlog.get_logger(__name__)
STATUSES = {code.value: code.status for code in ErrorCode}


class SpanQueue(Protocol):
    """See export.SpanExport."""

    def add(self, span: ReadableSpan) -> None: ...

    def close(self) -> None:
        """Blocks while it exports what is left."""
        ...


class Tracing:
    """Implements request_log.RequestObserver. `async with` exports what is left at its end.

    slow_s: a request that takes longer is kept. content: bounds the bytes of prompts and answers
    that wait for their spans; None where spans have neither.
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
        self._writing: ThreadPoolExecutor | None = None  # of spans with content
        self.content = HeldBytes(MOST_CONTENT) if configuration.has_content else None

    async def __aenter__(self) -> Self:
        self._queue = self._make_queue()
        if self.content is not None:
            self._writing = ThreadPoolExecutor(1, thread_name_prefix="spans")
        return self

    async def __aexit__(self, *_: object) -> None:
        writing, self._writing = self._writing, None
        if writing is not None:
            await asyncio.to_thread(writing.shutdown)
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
        exchange, timeline.exchange = timeline.exchange, None  # others may keep the timeline
        if not self._keeps(timeline, line):
            self._give_back(exchange)
        elif exchange is None or self._writing is None:
            self._write(timeline, line, exchange)
        else:  # to read an answer of a megabyte takes milliseconds
            self._writing.submit(self._write, timeline, line, exchange)

    def _keeps(self, timeline: Timeline, line: Mapping[str, Any]) -> bool:
        trace = timeline.trace
        if trace is None or str(line.get("path", "")).startswith(UNTRACED):
            return False
        return trace.is_sampled or _has_failed(line) or timeline.duration_s > self._slow_s

    def _write(
        self, timeline: Timeline, line: Mapping[str, Any], exchange: Exchange | None
    ) -> None:
        trace, queue = timeline.trace, self._queue
        if trace is None or queue is None:
            return
        try:
            content = {} if exchange is None else content_of(exchange)
            spans = RequestSpans(timeline, trace, line, self._resource, content)
            for span in spans.all(has_failed=_has_failed(line)):
                queue.add(span)
        except Exception:  # nobody waits for what a thread raises
            logger.exception("the spans of a request are lost", advice=REPORT)
        finally:
            self._give_back(exchange)

    def _give_back(self, exchange: Exchange | None) -> None:
        if exchange is not None and self.content is not None:
            self.content.give_back(exchange.held)

    def _is_sampled(self, trace_id: int, caller: CallersTrace | None) -> bool:
        if caller is not None and self._configuration.follows_callers:
            return caller.is_sampled
        return trace_id & ((1 << SAMPLING_BITS) - 1) < self._bound


def _has_failed(line: Mapping[str, Any]) -> bool:
    """By a fault that is not the caller's. A stream that broke off has status 200, and an error."""
    status = STATUSES.get(line.get("error", ""), line.get("status", 0))
    return bool(status >= FIRST_FAULT_STATUS)
