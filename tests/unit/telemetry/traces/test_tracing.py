"""Which variables trace, which requests become traces, what spans say, and their way out."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace.status import StatusCode

from proxy.domain.record import (
    MOST_STAGES,
    RequestRecord,
    Stage,
    StageName,
    current_record,
    stage,
)
from proxy.telemetry.traces.configuration import (
    TraceConfiguration,
    WrongTraceVariable,
)
from proxy.telemetry.traces.tracing import (
    LONGEST_HEADER,
    CountedExporter,
    Tracing,
    callers_trace,
)
from tests.fixtures.stack import free_port

RESOURCE = Resource.create({"service.name": "tested"})
TRACE, SPAN = b"ab" * 16, b"cd" * 8
PARENT = (b"traceparent", b"00-" + TRACE + b"-" + SPAN)
LINE = {
    "method": "POST",
    "path": "/v1/chat/completions",
    "status": 200,
    "model": "demo",
    "finish": "stop",
    "prompt_tokens": 7,
    "user": "somebody",
}


def tracing_to(exporter, *, slow_s=10.0, close_s=5.0, **changed) -> Tracing:
    usual = {"ratio": 1.0, "follows_callers": True, "propagates": True}
    configuration = TraceConfiguration(endpoint="http://x", service="s", **{**usual, **changed})
    return Tracing(configuration, lambda: exporter, RESOURCE, slow_s=slow_s, close_s=close_s)


def traced(
    line=LINE, headers=(), work=lambda record: None, *, to=None, requests=1, **options
) -> list[ReadableSpan]:
    """The spans of requests, when the tracing has ended."""
    kept = InMemorySpanExporter()
    tracing = tracing_to(to or kept, **options)

    async def run() -> None:
        async with tracing:
            for _ in range(requests):
                record = RequestRecord(
                    path=line["path"], operation="chat", trace=tracing.trace(headers)
                )
                token = current_record.set(record)
                work(record)
                record.end()
                tracing.ended(record, line)
                current_record.reset(token)

    asyncio.run(run())
    return [*kept.get_finished_spans()]


@pytest.mark.parametrize(
    ("flags", "changed", "is_kept"),
    [
        (b"-01", {"ratio": 0.0}, True),
        (b"-00", {"ratio": 1.0}, False),
        (b"-00", {"ratio": 1.0, "follows_callers": False}, True),
        (b"-01", {"ratio": 0.0, "follows_callers": False}, False),
        (b"-01", {"ratio": 0.0, "propagates": False}, False),
    ],
)
def test_who_decides(flags, changed, is_kept):
    assert bool(traced(headers=[(PARENT[0], PARENT[1] + flags)], **changed)) is is_kept


@pytest.mark.parametrize(
    ("line", "is_kept"),
    [
        ({**LINE, "status": 503, "error": "model_unavailable"}, True),
        ({**LINE, "error": "engine_stalled"}, True),  # in the middle of a stream
        ({**LINE, "status": 429, "error": "rate_limit_exceeded"}, False),
        ({**LINE, "status": 500}, True),
        (LINE, False),
    ],
)
def test_what_failed_by_our_fault_is_kept_without_being_sampled(line, is_kept):
    found = traced(line, ratio=0.0)
    assert bool(found) is is_kept
    assert all(span.status.status_code is StatusCode.ERROR for span in found[:1])


def test_what_was_slow_is_kept_and_triton_was_not_asked_to_trace_it():
    stages: list[Stage] = []

    def work(record: RequestRecord) -> None:
        stages.append(stage(StageName.TRITON))
        record.began -= 20

    assert len(traced(ratio=0.0, work=work)) == 2
    assert stages[0].traceparent is None


def test_a_request_has_a_bounded_number_of_spans():
    def work(record: RequestRecord) -> None:
        for _ in range(1000):
            stage(StageName.TRITON).end()

    found = traced(work=work)
    assert len(found) == 1 + MOST_STAGES
    assert found[0].attributes["triton_openai.dropped_stages"] == 1000 - MOST_STAGES


@pytest.mark.parametrize(
    "values",
    [
        [b""],
        [PARENT[1] + b"-zz"],
        [b"00-" + b"0" * 32 + b"-" + SPAN + b"-01"],
        [b"ff-" + TRACE + b"-" + SPAN + b"-01"],
        [b"x" * 100_000],
        [PARENT[1] + b"-01\xff"],
        [PARENT[1] + b"-01"] * 2,
    ],
)
def test_a_callers_trace_that_is_invalid_or_there_twice_counts_as_none(values, caplog):
    assert callers_trace([(b"traceparent", value) for value in values]) is None
    assert not caplog.records, "a caller cannot write into the log"


def test_a_callers_state_is_kept_unless_it_is_long():
    parent = (PARENT[0], PARENT[1] + b"-01")
    states = (b"tracestate", b"a=1"), (b"tracestate", b"b=2")
    assert callers_trace([parent, *states]).state == "a=1,b=2"
    long = (b"tracestate", b"a" * (LONGEST_HEADER + 1))
    assert callers_trace([parent, long]).state == ""


def exported(url: str, spans: int, close_s: float) -> Counter[str]:
    """What became of them, when the queue is closed."""
    counts: Counter[str] = Counter()
    exporter = CountedExporter(url, lambda outcome, count: counts.update({outcome: count}))
    traced(to=exporter, requests=spans, close_s=close_s)
    return counts


def test_an_endpoint_that_is_away_does_not_hold_up_the_end():
    counts = exported(f"http://127.0.0.1:{free_port()}/v1/traces", 10, close_s=0.2)
    assert set(counts) <= {"failed"}


URL = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318/"}


def read(**variables: str) -> TraceConfiguration | None:
    return TraceConfiguration.read({**URL, **variables})


def test_an_endpoint_turns_traces_on_and_others_say_what_is_done():
    assert TraceConfiguration.read({}) is None
    found = read()
    assert found.endpoint == "http://collector:4318/v1/traces"
    assert (found.ratio, found.follows_callers, found.propagates) == (1.0, True, True)
    own = read(OTEL_EXPORTER_OTLP_TRACES_ENDPOINT="http://traces/in")
    assert own.endpoint == "http://traces/in"
    assert read(OTEL_SDK_DISABLED="TRUE") is read(OTEL_TRACES_EXPORTER="none") is None
    assert not read(OTEL_PROPAGATORS="none").propagates
    assert read(OTEL_PROPAGATORS="baggage,tracecontext").propagates
    for value, has_content in (("", False), ("NO_CONTENT", False), ("true", True)):
        found = read(OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=value)
        assert found.has_content is has_content


@pytest.mark.parametrize(
    ("sampler", "argument", "ratio", "follows_callers"),
    [
        ("always_on", "", 1.0, False),
        ("always_off", "0.5", 0.0, False),
        ("traceidratio", "0.25", 0.25, False),
        ("traceidratio", "", 1.0, False),
        ("parentbased_traceidratio", "0.01", 0.01, True),
        ("parentbased_always_off", "", 0.0, True),
    ],
)
def test_samplers(sampler, argument, ratio, follows_callers):
    found = read(OTEL_TRACES_SAMPLER=sampler, OTEL_TRACES_SAMPLER_ARG=argument)
    assert (found.ratio, found.follows_callers) == (ratio, follows_callers)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("OTEL_TRACES_SAMPLER", "jaeger_remote"),
        ("OTEL_TRACES_EXPORTER", "zipkin"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
        ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/json"),
        ("OTEL_PROPAGATORS", "b3"),
        ("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "EVENT_ONLY"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(name, value):
    with pytest.raises(WrongTraceVariable, match=f"{name}={value} is not supported"):
        read(**{name: value})


@pytest.mark.parametrize("argument", ["1.5", "-0.1", "half", "nan"])
def test_a_ratio_is_a_share(argument):
    with pytest.raises(WrongTraceVariable, match=f"OTEL_TRACES_SAMPLER_ARG={argument}"):
        read(OTEL_TRACES_SAMPLER="traceidratio", OTEL_TRACES_SAMPLER_ARG=argument)
