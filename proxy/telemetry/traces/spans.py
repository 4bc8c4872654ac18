"""A request that has ended -> its spans, as OpenTelemetry's exporters take them. Pure.

Attributes `gen_ai.…` are of OpenTelemetry's GenAI conventions
(open-telemetry/semantic-conventions-genai, all of it in development); `http.…`, `url.…` and
`error.type` of its general ones; the others are ours.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, TraceFlags, TraceState
from opentelemetry.trace.status import Status, StatusCode

from proxy.domain.record import SPAN_BITS, RequestRecord, Stage, StageName, Trace, new_id

SCOPE = InstrumentationScope("triton_openai.proxy")
SAMPLED = TraceFlags(TraceFlags.SAMPLED)
KINDS: Mapping[StageName, SpanKind] = {StageName.TRITON: SpanKind.CLIENT}
NANOSECONDS = 1_000_000_000
FAILED = Status(StatusCode.ERROR)
UNSET = Status(StatusCode.UNSET)
PROVIDER, PROVIDER_NAME = "gen_ai.provider.name", "triton"
OPERATION = "gen_ai.operation.name"
ERROR_TYPE = "error.type"
DROPPED = "triton_openai.dropped_stages"
OPERATIONS: Mapping[str, str] = {
    "/v1/chat/completions": "chat",
    "/v1/completions": "text_completion",
}

Convert = Callable[[Any], Any]


def _same(value: Any) -> Any:
    return value


def _seconds(milliseconds: Any) -> float:
    return float(milliseconds) / 1000


# Field of the request's log line -> attribute, and how its value is converted. Others stay out.
OF_LINE: Mapping[str, tuple[str, Convert]] = {
    "method": ("http.request.method", _same),
    "path": ("url.path", _same),
    "status": ("http.response.status_code", _same),
    "error": (ERROR_TYPE, _same),
    "model": ("gen_ai.request.model", _same),
    "id": ("gen_ai.response.id", _same),
    "finish": ("gen_ai.response.finish_reasons", lambda finish: (finish,)),
    "prompt_tokens": ("gen_ai.usage.input_tokens", _same),
    "completion_tokens": ("gen_ai.usage.output_tokens", _same),
    "cached_tokens": ("gen_ai.usage.cache_read.input_tokens", _same),
    "ttft_ms": ("gen_ai.response.time_to_first_chunk", _seconds),
    "tenant": ("triton_openai.tenant", _same),
    "key_id": ("triton_openai.key_id", _same),
    "resent": ("triton_openai.resent", _same),
    "continued": ("triton_openai.continued", _same),
    "idempotency": ("triton_openai.idempotency", _same),
    "capped_priority": ("triton_openai.capped_priority", _same),
}


# Attribute of a stage -> of its span. Others get PREFIX.
OF_STAGE: Mapping[str, str] = {"tool": "gen_ai.tool.name", "endpoint": "server.address"}
PREFIX = "triton_openai."


class RequestSpans:
    """The spans of one request: its own, and one for each stage.

    content: attributes of the request's own. has_failed: it ended by a fault that is not its
    caller's.
    """

    def __init__(
        self,
        record: RequestRecord,
        trace: Trace,
        line: Mapping[str, Any],
        resource: Resource,
        content: Mapping[str, Any],
    ) -> None:
        self._record = record
        self._content = content
        self._trace = trace
        self._line = line
        self._resource = resource
        self._state = TraceState.from_header([trace.state]) if trace.state else None
        self._ids: dict[int, int] = {}  # id() of a stage -> its span's

    def all(self, *, has_failed: bool) -> list[ReadableSpan]:
        return [self._own(has_failed=has_failed), *map(self._of_stage, self._record.stages)]

    def _own(self, *, has_failed: bool) -> ReadableSpan:
        record, trace, line = self._record, self._trace, self._line
        found = {**_of_line(line), **self._content}
        if record.dropped:
            found[DROPPED] = record.dropped
        operation = found.get(OPERATION)
        name = f"{line.get('method')} {line.get('path')}"
        if operation is not None and "model" in line:
            name = f"{operation} {line['model']}"
        parent = None
        if trace.parent_id is not None:
            parent = SpanContext(trace.trace_id, trace.parent_id, is_remote=True)
        return self._span(
            name,
            trace.span_id,
            parent,
            SpanKind.SERVER,
            found,
            FAILED if has_failed else UNSET,
            (record.began, record.ended or record.began),
        )

    def _of_stage(self, stage: Stage) -> ReadableSpan:
        found = _of_stage(stage.attributes)
        if stage.error is not None:
            found[ERROR_TYPE] = stage.error
        own_id = self._trace.span_id if stage.parent is None else self._id_of(stage.parent)
        return self._span(
            stage.name.value,
            self._id_of(stage),
            self._context(own_id),
            KINDS.get(stage.name, SpanKind.INTERNAL),
            found,
            FAILED if stage.error is not None else UNSET,
            (stage.began, stage.ended or self._record.ended or stage.began),
        )

    def _span(
        self,
        name: str,
        span_id: int,
        parent: SpanContext | None,
        kind: SpanKind,
        found: dict[str, Any],
        status: Status,
        times: tuple[float, float],
    ) -> ReadableSpan:
        return ReadableSpan(
            name,
            context=self._context(span_id),
            parent=parent,
            resource=self._resource,
            attributes=found,
            kind=kind,
            instrumentation_scope=SCOPE,
            status=status,
            start_time=self._unix_ns(times[0]),
            end_time=self._unix_ns(times[1]),
        )

    def _context(self, span_id: int) -> SpanContext:
        return SpanContext(
            self._trace.trace_id, span_id, False, trace_flags=SAMPLED, trace_state=self._state
        )

    def _id_of(self, stage: Stage) -> int:
        """The id that Triton was given, or a new one."""
        stage.span_id = stage.span_id or new_id(SPAN_BITS)
        return stage.span_id

    def _unix_ns(self, at: float) -> int:
        return self._record.began_ns + int((at - self._record.began) * NANOSECONDS)


def _of_stage(found: Mapping[str, Any]) -> dict[str, Any]:
    return {OF_STAGE.get(name, PREFIX + name): value for name, value in found.items()}


def _of_line(line: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes of a request's own span."""
    found = {PROVIDER: PROVIDER_NAME}
    for field, (name, convert) in OF_LINE.items():
        if (value := line.get(field)) is not None:
            found[name] = convert(value)
    if operation := OPERATIONS.get(line.get("path", "")):
        found[OPERATION] = operation
    return found
