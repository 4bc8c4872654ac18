"""A request that has ended -> its spans, as OpenTelemetry's exporters take them. Pure.

Of the names of attributes, `gen_ai.…` is of OpenTelemetry's GenAI conventions
(open-telemetry/semantic-conventions-genai, all of it in development); `http.…`, `url.…` and
`error.type` of its general ones; the others are ours.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, TraceFlags, TraceState
from opentelemetry.trace.status import Status, StatusCode

from proxy.domain.record import SPAN_BITS, RequestRecord, Stage, StageName, Trace, new_id
from proxy.telemetry.request_log import Line

SCOPE = InstrumentationScope("triton_openai.proxy")
SAMPLED = TraceFlags(TraceFlags.SAMPLED)
NANOSECONDS = 1_000_000_000
ERROR_TYPE, OPERATION = "error.type", "gen_ai.operation.name"
# Field of the request's log line -> attribute. Others stay out.
OF_LINE: Mapping[str, str] = {
    "method": "http.request.method",
    "path": "url.path",
    "status": "http.response.status_code",
    "error": ERROR_TYPE,
    "model": "gen_ai.request.model",
    "id": "gen_ai.response.id",
    "finish": "gen_ai.response.finish_reasons",
    "prompt_tokens": "gen_ai.usage.input_tokens",
    "completion_tokens": "gen_ai.usage.output_tokens",
    "cached_tokens": "gen_ai.usage.cache_read.input_tokens",
    "ttft_ms": "gen_ai.response.time_to_first_chunk",
    "request_trace": "triton_openai.request_trace",
    "tenant": "triton_openai.tenant",
    "key_id": "triton_openai.key_id",
    "resent": "triton_openai.resent",
    "continued": "triton_openai.continued",
    "idempotency": "triton_openai.idempotency",
    "capped_priority": "triton_openai.capped_priority",
    "clamped_max_tokens": "triton_openai.clamped_max_tokens",
    "dropped_tools": "triton_openai.dropped_tools",
}
# Attribute of a stage -> of its span. Others get PREFIX.
OF_STAGE: Mapping[str, str] = {"tool": "gen_ai.tool.name", "endpoint": "server.address"}
PREFIX = "triton_openai."


def spans_of(
    record: RequestRecord,
    trace: Trace,
    line: Line,
    resource: Resource,
    content: Mapping[str, Any],
    *,
    has_failed: bool,
) -> Iterator[ReadableSpan]:
    """The request's own span, then one for each stage.

    content: attributes of the request's own. has_failed: it ended by a fault that is not its
    caller's.
    """
    state = TraceState.from_header([trace.state]) if trace.state else None

    def context(span_id: int) -> SpanContext:
        return SpanContext(trace.trace_id, span_id, False, trace_flags=SAMPLED, trace_state=state)

    def unix_ns(at: float) -> int:
        return record.began_ns + int((at - record.began) * NANOSECONDS)

    def span(
        name: str,
        span_id: int,
        parent: SpanContext | None,
        kind: SpanKind,
        attributes: dict[str, Any],
        has_failed: bool,
        began: float,
        ended: float | None,
    ) -> ReadableSpan:
        return ReadableSpan(
            name,
            context=context(span_id),
            parent=parent,
            resource=resource,
            attributes=attributes,
            kind=kind,
            instrumentation_scope=SCOPE,
            status=Status(StatusCode.ERROR if has_failed else StatusCode.UNSET),
            start_time=unix_ns(began),
            end_time=unix_ns(ended or record.ended or began),
        )

    operation = record.operation
    parent = None
    if trace.parent_id is not None:
        parent = SpanContext(trace.trace_id, trace.parent_id, is_remote=True)
    yield span(
        f"{operation} {line['model']}"
        if operation and "model" in line
        else f"{line.get('method')} {line.get('path')}",
        trace.span_id,
        parent,
        SpanKind.SERVER,
        {**_of_line(line, operation), **content, **_dropped(record)},
        has_failed,
        record.began,
        record.ended,
    )
    for stage in record.stages:
        yield span(
            stage.name.value,
            _id_of(stage),
            context(trace.span_id if stage.parent is None else _id_of(stage.parent)),
            SpanKind.CLIENT if stage.name is StageName.TRITON else SpanKind.INTERNAL,
            _of_stage(stage),
            stage.error is not None,
            stage.began,
            stage.ended,
        )


def _id_of(stage: Stage) -> int:
    """The id that Triton was given, or a new one."""
    stage.span_id = stage.span_id or new_id(SPAN_BITS)
    return stage.span_id


def _of_stage(stage: Stage) -> dict[str, Any]:
    given = stage.attributes.items()
    found = {OF_STAGE.get(name, PREFIX + name): value for name, value in given}
    return found if stage.error is None else {**found, ERROR_TYPE: stage.error}


def _of_line(line: Line, operation: str | None) -> dict[str, Any]:
    found = {name: line[field] for field, name in OF_LINE.items() if field in line}
    found["gen_ai.provider.name"] = "triton"
    if "finish" in line:
        found[OF_LINE["finish"]] = (line["finish"],)
    if "ttft_ms" in line:
        found[OF_LINE["ttft_ms"]] = line["ttft_ms"] / 1000
    if operation is not None:
        found[OPERATION] = operation
    return found


def _dropped(record: RequestRecord) -> dict[str, int]:
    return {f"{PREFIX}dropped_stages": record.dropped} if record.dropped else {}
