"""OpenTelemetry's variables: what is supported, and what is refused by name."""

from __future__ import annotations

import pytest

from proxy.telemetry.traces.configuration import (
    TraceConfiguration,
    WrongTraceVariable,
)

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
