"""Which requests become traces, and what their spans say."""

from __future__ import annotations

import asyncio

import pytest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace.status import StatusCode

from proxy.domain.record import (
    MOST_STAGES,
    RequestRecord,
    Stage,
    StageName,
    current_record,
    stage,
)
from proxy.telemetry.traces.configuration import TraceConfiguration
from proxy.telemetry.traces.tracing import Tracing

RESOURCE = Resource.create({"service.name": "tested"})
PARENT = (b"traceparent", b"00-" + b"ab" * 16 + b"-" + b"cd" * 8)
LINE = {
    "method": "POST",
    "path": "/v1/chat/completions",
    "status": 200,
    "model": "demo",
    "finish": "stop",
    "prompt_tokens": 7,
    "user": "somebody",
}


class Kept(list[ReadableSpan]):
    """A tracing.SpanQueue."""

    def add(self, span: ReadableSpan) -> None:
        self.append(span)

    def close(self) -> None:
        pass


def traced(line=LINE, headers=(), work=lambda record: None, *, slow_s=10.0, **changed) -> Kept:
    """The spans of one request."""
    kept, usual = Kept(), {"ratio": 1.0, "follows_callers": True, "propagates": True}
    configuration = TraceConfiguration(endpoint="http://x", service="s", **{**usual, **changed})

    async def run() -> None:
        tracing = Tracing(configuration, lambda: kept, RESOURCE, slow_s=slow_s)
        async with tracing:
            record = RequestRecord(path=line["path"], trace=tracing.trace(headers))
            token = current_record.set(record)
            work(record)
            record.end()
            tracing.ended(record, line)
            current_record.reset(token)

    asyncio.run(run())
    return kept


def test_a_request_and_its_stages():
    def work(record: RequestRecord) -> None:
        with stage(StageName.QUEUE):
            pass
        triton = stage(StageName.TRITON)
        triton.attributes["endpoint"] = "a:1"
        triton.stage(StageName.ROUTING).end()
        assert triton.traceparent == f"00-{'ab' * 16}-{triton.span_id:016x}-01"
        triton.end()

    request, queue, triton, routing = traced(headers=[(PARENT[0], PARENT[1] + b"-01")], work=work)
    assert request.name == "chat demo"
    assert request.parent.span_id == int("cd" * 8, 16)
    assert {span.context.trace_id for span in (request, queue, triton)} == {int("ab" * 16, 16)}
    assert [span.name for span in (queue, triton, routing)] == ["queue", "triton", "routing"]
    assert queue.parent.span_id == triton.parent.span_id == request.context.span_id
    assert routing.parent.span_id == triton.context.span_id
    assert triton.attributes == {"server.address": "a:1"}
    assert request.attributes["gen_ai.usage.input_tokens"] == 7
    assert request.attributes["gen_ai.response.finish_reasons"] == ("stop",)
    assert "somebody" not in str(request.attributes)
    assert request.start_time <= triton.start_time <= routing.start_time
    assert routing.end_time <= triton.end_time <= request.end_time
    assert request.status.status_code is StatusCode.UNSET


def test_a_stage_that_fails_has_the_name_of_its_error():
    def work(record: RequestRecord) -> None:
        with pytest.raises(ValueError, match="secret"), stage(StageName.PLAN):
            raise ValueError("secret")

    request, plan = traced(work=work)
    assert (plan.attributes, plan.status.status_code) == (
        {"error.type": "ValueError"},
        StatusCode.ERROR,
    )
    assert request.status.status_code is StatusCode.UNSET


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


def test_a_ratio_is_a_share_of_traces():
    kept = sum(bool(traced(ratio=0.25)) for _ in range(400))
    assert 60 <= kept <= 140  # six standard deviations


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


@pytest.mark.parametrize("path", ["/metrics", "/health/ready"])
def test_probes_make_no_traces(path):
    assert not traced({"method": "GET", "path": path, "status": 503})


def test_a_request_has_a_bounded_number_of_spans():
    def work(record: RequestRecord) -> None:
        for _ in range(1000):
            stage(StageName.TRITON).end()

    found = traced(work=work)
    assert len(found) == 1 + MOST_STAGES
    assert found[0].attributes["triton_openai.dropped_stages"] == 1000 - MOST_STAGES


def test_a_stage_after_the_end_is_not_kept():
    record = RequestRecord()
    record.end()
    record.stage(StageName.TRITON)
    assert record.stages == []


def test_outside_of_a_request_stages_are_kept_nowhere():
    with stage(StageName.PLAN) as found:
        assert found.traceparent is None
    assert found.record is not stage(StageName.PLAN).record
