"""A request that has ended -> its spans, as OpenTelemetry's exporters take them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, TraceFlags, TraceState
from opentelemetry.trace.status import Status, StatusCode

from proxy.domain.record import SPAN_BITS, RequestRecord, Stage, StageName, Trace, new_id
from proxy.telemetry.traces import attributes

SCOPE = InstrumentationScope("triton_openai.proxy")
SAMPLED = TraceFlags(TraceFlags.SAMPLED)
KINDS: Mapping[StageName, SpanKind] = {StageName.TRITON: SpanKind.CLIENT}
NANOSECONDS = 1_000_000_000
FAILED = Status(StatusCode.ERROR)
UNSET = Status(StatusCode.UNSET)


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
        found = {**attributes.of_line(line), **self._content}
        if record.dropped:
            found[attributes.DROPPED] = record.dropped
        operation = found.get(attributes.OPERATION)
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
        found = attributes.of_stage(stage.attributes)
        if stage.error is not None:
            found[attributes.ERROR_TYPE] = stage.error
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
