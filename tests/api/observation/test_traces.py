"""Traces of requests to the whole application, as an OTLP endpoint receives them."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from proxy.domain.errors import EngineFailed, LaunchError
from tests.api.tools.test_server_tools import call, rounds
from tests.api.tools.test_tools import CATALOG, CHAT, HI
from tests.doubles.engine import ScriptedEngine, deltas
from tests.fixtures.otlp import Collector, Span, collecting

TRACE, PARENT = "ab" * 16, "cd" * 8
SAMPLED = {"traceparent": f"00-{TRACE}-{PARENT}-01"}
BODY = {"model": "demo", "messages": HI, "stream": True}


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    with collecting() as found:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", found.url)
        yield found


def spans(client, collector: Collector) -> list[Span]:
    """All, when the application has stopped."""
    client.__exit__(None, None, None)
    return sorted(collector.spans, key=lambda span: span.times)


def names(found: list[Span]) -> list[str]:
    return [span.name for span in found]


def test_a_streamed_chat_with_a_tool_of_the_server(serve, policy, collector):
    engine = rounds(f"Let me see. {call('weather')}", "12 degrees.")
    client = serve(engine, CATALOG, models_file=policy())
    headers = {**SAMPLED, "x-request-trace": "order-17"}
    assert '"finish_reason":"stop"' in client.post(CHAT, json=BODY, headers=headers).text
    client.get("/health/ready")
    found = spans(client, collector)
    (request,) = [span for span in found if span.parent == PARENT]
    assert (request.name, request.service, request.trace_id) == (
        "chat demo",
        "triton-openai-proxy",
        TRACE,
    )
    children = [span for span in found if span.parent == request.span_id]
    assert names(children) == [
        "body",
        "plan",
        "limits",
        "queue",
        "triton",
        "tool",
        "queue",
        "triton",
    ]
    assert len(found) == 1 + len(children)
    assert request.attributes["gen_ai.usage.output_tokens"] > 0
    assert request.attributes["triton_openai.request_trace"] == "order-17"
    (tool,) = [span for span in found if span.name == "tool"]
    assert tool.attributes == {"gen_ai.tool.name": "weather"}
    assert "12 degrees" not in str(found)
    assert engine.requests[0].stage.traceparent.startswith(f"00-{TRACE}-")


def test_a_request_that_is_not_sampled_leaves_nothing(serve, collector):
    engine = ScriptedEngine(deltas("hi"))
    client = serve(engine)
    headers = {"traceparent": f"00-{TRACE}-{PARENT}-00"}
    assert client.post(CHAT, json=BODY, headers=headers).status_code == 200
    assert spans(client, collector) == []
    assert engine.requests[0].stage.traceparent is None


def test_one_that_fails_is_written_nevertheless(serve, collector, monkeypatch):
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_off")
    unfinished = deltas("hi", None)
    client = serve(ScriptedEngine(unfinished, error=EngineFailed("broken")))
    client.post(CHAT, json=BODY)
    request, *_ = spans(client, collector)
    assert request.has_failed
    assert request.attributes["error.type"] == "internal_error"


def test_content_where_it_is_asked_for(serve, collector, monkeypatch):
    monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "SPAN_ONLY")
    client = serve(ScriptedEngine(deltas("12 degrees.")))
    assert "[DONE]" in client.post(CHAT, json=BODY, headers=SAMPLED).text
    assert client.post(CHAT, json={**BODY, "store": False}, headers=SAMPLED).status_code == 200
    too_large = {**BODY, "messages": [{"role": "user", "content": "x" * 1_000_001}]}
    client.post(CHAT, json=too_large, headers=SAMPLED)
    found = [span.attributes for span in spans(client, collector) if span.parent == PARENT]
    said, stored, large = found
    (output,) = json.loads(said["gen_ai.output.messages"])
    assert output["parts"] == [{"type": "text", "content": "12 degrees."}]
    assert json.loads(said["gen_ai.input.messages"])[-1]["parts"][0]["content"] == HI[-1]["content"]
    assert not {name for name in stored if "messages" in name}
    assert large["triton_openai.content_lost"] == "too_large"


TEXT = {"type": "text", "content": "hi"}
ASKED = [
    (CHAT, {"messages": [{"role": "user", "content": "hi"}]}, [TEXT]),
    ("/v1/completions", {"prompt": ["hi", "hi"]}, [TEXT, TEXT]),
    (
        "/v1/messages",
        {"max_tokens": 5, "system": "hi", "messages": [{"role": "user", "content": "hi"}]},
        [TEXT, TEXT],
    ),
    ("/v1/responses", {"instructions": "hi", "input": "hi"}, [TEXT, TEXT]),
    (CHAT, {"messages": [{"role": "user", "content": "hi"}], "temperature": 9}, None),
    ("/chat/json", {"messages": [{"role": "user", "content": "hi"}]}, None),
]


@pytest.mark.parametrize(("path", "body", "parts"), ASKED)
def test_content_of_each_protocol_unless_its_request_is_refused(
    serve, collector, monkeypatch, path, body, parts
):
    monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "SPAN_ONLY")
    client = serve(ScriptedEngine(deltas("hi")))
    client.post(path, json={"model": "demo", **body}, headers=SAMPLED)
    (request,) = [span for span in spans(client, collector) if span.parent == PARENT]
    given = request.attributes.get("gen_ai.input.messages")
    found = None if given is None else [each["parts"] for each in json.loads(given)]
    assert found == (None if parts is None else [[each] for each in parts])
    operation = "text_completion" if path == "/v1/completions" else "chat"
    assert parts is None or request.name == f"{operation} demo"


@pytest.mark.parametrize("stream", [True, False])
def test_content_of_an_answer_that_breaks_off_is_what_its_client_got(
    serve, collector, monkeypatch, stream
):
    monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "SPAN_ONLY")
    client = serve(ScriptedEngine(deltas("hi", None), error=EngineFailed("broken")))
    client.post(CHAT, json={**BODY, "stream": stream}, headers=SAMPLED)
    (request,) = [span for span in spans(client, collector) if span.parent == PARENT]
    said = {"role": "assistant", "parts": [{"type": "text", "content": "hi"}], "finish_reason": ""}
    assert json.loads(request.attributes["gen_ai.output.messages"]) == [said] * stream


def test_a_variable_that_is_not_supported_stops_the_start(serve, collector, monkeypatch):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
    with pytest.raises(LaunchError, match="OTEL_EXPORTER_OTLP_PROTOCOL=grpc is not supported"):
        serve(ScriptedEngine())
