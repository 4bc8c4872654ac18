"""OpenTelemetry's queue and OTLP/HTTP exporter, with counts and an end in time. Made by
`app`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

CLOSE_S = 5.0
Count = Callable[[str, int], None]


class SpanExport:
    """Implements tracing.SpanQueue. Its thread runs from its making on.

    count: called in that thread, with (`exported` or `failed`, number of spans). close_s: how long
    `close` waits for an endpoint that does not answer.
    """

    def __init__(self, endpoint: str, count: Count, *, close_s: float = CLOSE_S) -> None:
        self._exporter = _CountedExporter(OTLPSpanExporter(endpoint), count)
        self._processor = BatchSpanProcessor(self._exporter)
        self._close_s = close_s

    def add(self, span: ReadableSpan) -> None:
        """Never waits: a full queue drops the span, and a line of the log says so."""
        self._processor.on_end(span)

    def close(self) -> None:
        giving_up = threading.Timer(self._close_s, self._exporter.shutdown)
        giving_up.start()
        try:
            self._processor.shutdown()  # type: ignore[no-untyped-call]
        finally:
            giving_up.cancel()


class _CountedExporter(SpanExporter):
    def __init__(self, inner: SpanExporter, count: Count) -> None:
        self._inner = inner
        self._count = count
        self._is_shut_down = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result = self._inner.export(spans)
        self._count("exported" if result is SpanExportResult.SUCCESS else "failed", len(spans))
        return result

    def shutdown(self) -> None:
        """Also ends the pauses before another try."""
        if not self._is_shut_down:
            self._is_shut_down = True
            self._inner.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return self._inner.force_flush(timeout_millis)
