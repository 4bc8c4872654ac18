"""One streamed chat that calls a tool of the server, as an OTLP endpoint receives it: the proxy's
spans, and tritonserver's own below them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import httpx
import pytest
import yaml

from tests.fixtures.otlp import Collector, Span, collecting
from tests.fixtures.running import ARTIFACTS, Start, alone, build
from tests.fixtures.stack import HANG_S, ROOT, Stack, eventually
from tests.fixtures.tool_server import running
from tests.server.test_tools import IN_ROME, WEATHER

TRACE, PARENT = "1234567890abcdef" * 2, "fedcba0987654321"
SAMPLED = {"traceparent": f"00-{TRACE}-{PARENT}-01"}
BODY = {"model": "demo", "messages": IN_ROME, "temperature": 0, "stream": True}
OURS, TRITONS = "triton-openai-proxy", "tritonserver"


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    with collecting() as found:
        yield found


@pytest.fixture(scope="module")
def traced(start: Start, collector: Collector) -> Iterator[Stack]:
    folder = ARTIFACTS / "traces"
    demo = yaml.safe_load((ROOT / "models.yaml").read_text())["models"]["demo"]
    with running() as tools:
        weather = {
            "url": tools.url("/weather"),
            "description": WEATHER["function"]["description"],
            "parameters": WEATHER["function"]["parameters"],
            "allow_private_addresses": True,
        }
        own = {"weights": str(ROOT / demo["weights"]), "server_tools": {"get_weather": weather}}
        with alone():
            folder.mkdir(parents=True, exist_ok=True)
            models_file = folder / "models.yaml"
            models_file.write_text(yaml.safe_dump({"models": {"demo": {**demo, **own}}}))
            build(models_file, folder)
        stack = start(
            "serve",
            MODELS_FILE=models_file,
            ARTIFACTS_DIR=folder,
            OTEL_EXPORTER_OTLP_ENDPOINT=collector.url,
            OTEL_TRACES_SAMPLER="parentbased_always_off",
            OTEL_BSP_SCHEDULE_DELAY=200,
        )
        stack.wait_ready(within_s=110)
        yield stack


def ask(stack: Stack, **headers: str) -> str:
    url = f"{stack.url}/v1/chat/completions"
    return httpx.post(url, json=BODY, headers=headers, timeout=HANG_S).text


def by_parent(spans: list[Span]) -> dict[str, list[Span]]:
    found: defaultdict[str, list[Span]] = defaultdict(list)
    for span in sorted(spans, key=lambda span: span.times):
        found[span.parent].append(span)
    return found


def test_a_chat_with_a_tool_is_one_trace_down_to_tritons_models(traced, collector):
    assert '"finish_reason":"stop"' in ask(traced, **SAMPLED)
    eventually(lambda: len(named(collector, "InferRequest")) == 2, 20, "Triton's spans are there")
    eventually(lambda: named(collector, "chat demo"), 20, "the proxy's spans are there")
    below = by_parent(collector.of(TRACE))
    (request,) = below[PARENT]
    assert (request.name, request.service) == ("chat demo", OURS)
    assert request.attributes["gen_ai.response.finish_reasons"] == ["stop"]
    names = [span.name for span in below[request.span_id]]
    assert names == ["body", "plan", "limits", "queue", "triton", "tool", "queue", "triton"]
    for stream in (span for span in below[request.span_id] if span.name == "triton"):
        assert stream.attributes["server.address"].endswith(f":{traced.triton_grpc_port}")
        own = [span.name for span in below[stream.span_id] if span.service == OURS]
        assert own == ["routing", "engine queue", "prefill", "decode"]
        (infer,) = [span for span in below[stream.span_id] if span.service == TRITONS]
        (ensemble,) = below[infer.span_id]
        models = {span.name for span in below[ensemble.span_id]}
        assert {"demo_tokenizer", "demo_engine", "demo_detokenizer"} <= models


def named(collector: Collector, name: str) -> list[Span]:
    return [span for span in collector.of(TRACE) if span.name == name]


def test_what_is_not_sampled_is_traced_by_neither(traced, collector):
    before = {span.trace_id for span in collector.spans}
    assert '"finish_reason":"stop"' in ask(traced)
    assert '"finish_reason":"stop"' in ask(traced, traceparent=f"00-{'a' * 32}-{PARENT}-00")
    assert '"finish_reason":"stop"' in ask(traced, traceparent=f"00-{'b' * 32}-{PARENT}-01")
    eventually(lambda: len(collector.of("b" * 32)) > 10, 20, "the last one is there")
    assert {span.trace_id for span in collector.spans} - before == {"b" * 32}
