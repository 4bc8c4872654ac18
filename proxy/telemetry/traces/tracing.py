"""Decides which requests are traced, and hands their spans to OpenTelemetry's exporter.

Nothing is written before a request has ended. Kept are sampled requests, and also those that were
slow or failed; of the latter, Triton has no spans of its own.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from http import HTTPStatus
from typing import Any

import structlog
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.trace import get_current_span
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from typing_extensions import Self

from proxy.domain.errors import ErrorCode
from proxy.domain.record import (
    FIRST_FAULT_STATUS,
    SPAN_BITS,
    TRACE_BITS,
    Headers,
    RequestRecord,
    Trace,
    new_id,
)
from proxy.telemetry.kept_content import HeldBytes
from proxy.telemetry.request_log import HEALTH_CHECKS, Line
from proxy.telemetry.traces.configuration import TraceConfiguration
from proxy.telemetry.traces.messages import TracedContent
from proxy.telemetry.traces.spans import spans_of

REPORT = "report it with this traceback; the request was answered"
MOST_CONTENT = 64_000_000  # bytes of requests and answers that run, or wait to be written
SAMPLING_BITS = 64  # the lower half of a trace id, as OpenTelemetry's own sampler does it
UNTRACED = ("/metrics", HEALTH_CHECKS)
CLOSE_S = 5.0
logger = structlog.get_logger(__name__)
_CONTEXT = TraceContextTextMapPropagator()
LONGEST_HEADER = 512  # characters of `traceparent`, and of `tracestate`; a longer one is ignored
STATUSES = {code.value: code.status for code in ErrorCode}


class CountedExporter(OTLPSpanExporter):
    """OpenTelemetry's OTLP/HTTP exporter. Exports in the thread of its queue.

    count: called in that thread, with (`exported` or `failed`, number of spans).
    """

    def __init__(self, endpoint: str, count: Callable[[str, int], None]) -> None:
        super().__init__(endpoint)
        self._count = count
        self._has_ended = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result = super().export(spans)
        self._count("exported" if result is SpanExportResult.SUCCESS else "failed", len(spans))
        return result

    def shutdown(self) -> None:
        """Also ends the pauses before another try."""
        if not self._has_ended:
            self._has_ended = True
            super().shutdown()  # type: ignore[no-untyped-call]


class Tracing:
    """Implements request_log.RecordReader. `async with` exports what is left at its end.

    exporter: called when the application starts. slow_s: a request that takes longer is kept.
    close_s: how long the end waits for an endpoint that does not answer. content: bounds the bytes
    of prompts and answers that wait for their spans; None where spans have neither.
    """

    def __init__(
        self,
        configuration: TraceConfiguration,
        exporter: Callable[[], SpanExporter],
        resource: Resource,
        *,
        slow_s: float,
        close_s: float = CLOSE_S,
    ) -> None:
        self._configuration = configuration
        self._bound = int(configuration.ratio * (1 << SAMPLING_BITS))
        self._make_exporter = exporter
        self._resource = resource
        self._slow_s, self._close_s = slow_s, close_s
        self._exporter: SpanExporter | None = None
        self._queue: BatchSpanProcessor | None = None
        self._writing: ThreadPoolExecutor | None = None  # of spans with content
        self.content = HeldBytes(MOST_CONTENT) if configuration.has_content else None

    async def __aenter__(self) -> Self:
        self._exporter = self._make_exporter()
        self._queue = BatchSpanProcessor(self._exporter)
        if self.content is not None:
            self._writing = ThreadPoolExecutor(1, thread_name_prefix="spans")
        return self

    async def __aexit__(self, *_: object) -> None:
        writing, self._writing = self._writing, None
        if writing is not None:
            await asyncio.to_thread(writing.shutdown)
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        queue, exporter, self._queue = self._queue, self._exporter, None
        if queue is None or exporter is None:
            return
        giving_up = threading.Timer(self._close_s, exporter.shutdown)
        giving_up.start()
        try:
            queue.shutdown()  # type: ignore[no-untyped-call]
        finally:
            giving_up.cancel()

    def trace(self, headers: Headers) -> Trace:
        """Where a request that begins stands in a trace. headers: the caller's."""
        found = callers_trace(headers) if self._configuration.propagates else None
        if found is not None and self._configuration.follows_callers:
            return found
        if found is None:
            found = Trace(trace_id=new_id(TRACE_BITS), span_id=new_id(SPAN_BITS))
        found.is_sampled = found.trace_id & ((1 << SAMPLING_BITS) - 1) < self._bound
        return found

    def ended(self, record: RequestRecord, line: Line) -> None:
        content, record.content = record.content, None
        if not (isinstance(content, TracedContent) and content.has_ended):
            content = None  # the answer continues for the next reader
        if not self._keeps(record, line):
            if content is not None:
                content.give_back()
        elif content is None or self._writing is None:
            self._write(record, line, content)
        else:  # to read a body of a megabyte takes milliseconds
            record = copy(record)  # the log takes the stages away
            record.field_names = dict  # they may hold the body
            self._writing.submit(self._write, record, line, content)

    def _keeps(self, record: RequestRecord, line: Line) -> bool:
        trace = record.trace
        if trace is None or record.path.startswith(UNTRACED):
            return False
        return trace.is_sampled or _has_failed(line) or record.duration_s > self._slow_s

    def _write(self, record: RequestRecord, line: Line, content: TracedContent | None) -> None:
        trace, queue = record.trace, self._queue
        if trace is None or queue is None:
            return
        try:
            is_answered = record.status == HTTPStatus.OK
            found = {}
            if content is not None and not record.is_private:
                found = content.attributes(is_answered=is_answered)
            has_failed = _has_failed(line)
            for span in spans_of(record, trace, line, self._resource, found, has_failed=has_failed):
                queue.on_end(span)  # a full queue drops the span, and a line of the log says so
        except Exception:  # nobody waits for what a thread raises
            logger.exception("the spans of a request are lost", advice=REPORT)
        finally:
            if content is not None:
                content.give_back()


def _has_failed(line: Mapping[str, Any]) -> bool:
    """By a fault that is not the caller's. A stream that broke off has status 200, and an error."""
    status: int = STATUSES.get(line.get("error", ""), line.get("status", 0))
    return status >= FIRST_FAULT_STATUS


def callers_trace(headers: Headers) -> Trace | None:
    """None where the header is missing, invalid, or there twice: the request begins a trace then.

    headers: names in lower case.
    """
    parents = [value.decode("latin-1") for name, value in headers if name == b"traceparent"]
    if len(parents) != 1 or len(parents[0]) > LONGEST_HEADER:  # OpenTelemetry warns of long ones
        return None
    found = get_current_span(_CONTEXT.extract({"traceparent": parents[0]})).get_span_context()
    if not found.is_valid:
        return None
    return Trace(
        trace_id=found.trace_id,
        span_id=new_id(SPAN_BITS),
        parent_id=found.span_id,
        is_sampled=found.trace_flags.sampled,
        state=_state(headers),
    )


def _state(headers: Headers) -> str:
    """All `tracestate` headers as one list."""
    values = [value.decode("latin-1") for name, value in headers if name == b"tracestate"]
    joined = ",".join(values)
    return joined if len(joined) <= LONGEST_HEADER else ""
