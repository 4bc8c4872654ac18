"""Spans on their way to an OTLP endpoint, which may be away."""

from __future__ import annotations

from collections import Counter

from opentelemetry.sdk.resources import Resource

from proxy.domain.record import RequestRecord, Trace
from proxy.telemetry.traces.export import SpanExport
from proxy.telemetry.traces.spans import RequestSpans
from tests.fixtures.otlp import collecting
from tests.fixtures.stack import free_port


def exported(url: str, spans: int, close_s: float) -> Counter[str]:
    """What became of them, when the queue is closed."""
    counts: Counter[str] = Counter()
    export = SpanExport(
        url, lambda outcome, count: counts.update({outcome: count}), close_s=close_s
    )
    trace = Trace(trace_id=1, span_id=2, parent_id=None, is_sampled=True)
    record, resource = RequestRecord(trace=trace), Resource.create({"service.name": "tested"})
    record.end()
    for _ in range(spans):
        (span,) = RequestSpans(record, trace, {}, resource, {}).all(has_failed=False)
        export.add(span)
    export.close()
    return counts


def test_what_is_left_is_exported_at_the_end():
    with collecting() as collector:
        assert exported(f"{collector.url}/v1/traces", 600, close_s=100) == {"exported": 600}
        assert len(collector.spans) == 600
        assert {span.service for span in collector.spans} == {"tested"}


def test_an_endpoint_that_is_away_does_not_hold_up_the_end():
    counts = exported(f"http://127.0.0.1:{free_port()}/v1/traces", 10, close_s=0.2)
    assert set(counts) <= {"failed"}
