"""Decides which requests are traced, and hands their spans to OpenTelemetry's exporter.

Nothing is written before a request has ended. Kept are sampled requests, and also those that were
slow or failed; of the latter, Triton has no spans of its own.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from typing import Any, Protocol

import structlog
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
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
from proxy.telemetry.traces.spans import RequestSpans

REPORT = "report it with this traceback; the request was answered"
MOST_CONTENT = 64_000_000  # bytes of requests and answers that run, or wait to be written
SAMPLING_BITS = 64  # the lower half of a trace id, as OpenTelemetry's own sampler does it
UNTRACED = ("/metrics", HEALTH_CHECKS)
logger = structlog.get_logger(__name__)
# https://www.w3.org/TR/trace-context/ (level 1, 2021-11-23)
_HEADER = re.compile(rb"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.DOTALL)
_INVALID_VERSION = b"ff"
_SAMPLED = 1
LONGEST_STATE = 512  # characters of `tracestate`; a longer one is not passed on
STATUSES = {code.value: code.status for code in ErrorCode}


class SpanQueue(Protocol):
    """See export.SpanExport."""

    def add(self, span: ReadableSpan) -> None: ...

    def close(self) -> None:
        """Blocks while it exports what is left."""
        ...


class Tracing:
    """Implements request_log.RecordReader. `async with` exports what is left at its end.

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
            content = None  # the answer goes on for the next reader
        if not self._keeps(record, line):
            if content is not None:
                content.give_back()
        elif content is None or self._writing is None:
            self._write(record, line, content)
        else:  # to read a body of a megabyte takes milliseconds
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
            found = {} if content is None else content.attributes(is_answered=is_answered)
            spans = RequestSpans(record, trace, line, self._resource, found)
            for span in spans.all(has_failed=_has_failed(line)):
                queue.add(span)
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
    parents = [value for name, value in headers if name == b"traceparent"]
    found = _HEADER.fullmatch(parents[0].strip()) if len(parents) == 1 else None
    if found is None:
        return None
    version, trace_id, span_id, flags, rest = found.groups()
    is_known = version != _INVALID_VERSION and (version != b"00" or rest is None)
    trace, span = int(trace_id, 16), int(span_id, 16)
    if not (is_known and trace and span):
        return None
    return Trace(
        trace_id=trace,
        span_id=new_id(SPAN_BITS),
        parent_id=span,
        is_sampled=bool(int(flags, 16) & _SAMPLED),
        state=_state(headers),
    )


def _state(headers: Headers) -> str:
    """All `tracestate` headers as one list."""
    values = [value.decode("latin-1") for name, value in headers if name == b"tracestate"]
    joined = ",".join(values)
    return joined if len(joined) <= LONGEST_STATE else ""
