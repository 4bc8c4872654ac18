"""/metrics over the real tritonserver agrees with a load generator and with the engine."""

from __future__ import annotations

import json
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import httpx

from tests.fixtures.metric_samples import MetricSamples, quantile_of
from tests.fixtures.stack import HANG_S, Stack

MODEL, REQUESTS, AT_ONCE = "steady", 300, 4
HELLO = [{"role": "user", "content": "Hello!"}]
LABELS = {"model": MODEL}


@dataclass
class Seen:
    """What the load generator saw of one stream."""

    ttft_s: float
    duration_s: float
    prompt_tokens: int
    completion_tokens: int
    finish: str


def stream(client: httpx.Client, url: str, number: int) -> Seen:
    body = {
        "model": MODEL,
        "messages": HELLO,
        "max_tokens": 3 + number % 9,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    began, first = time.perf_counter(), None
    with client.stream("POST", f"{url}/v1/chat/completions", json=body) as answer:
        chunks = []
        for line in answer.iter_lines():
            if not line.startswith("data: {"):
                continue
            chunks.append(json.loads(line[6:]))
            if first is None and any(one["delta"].get("content") for one in chunks[-1]["choices"]):
                first = time.perf_counter()
    ended, usage = time.perf_counter(), chunks[-1]["usage"]
    [finish] = [
        one["finish_reason"] for chunk in chunks for one in chunk["choices"] if one["finish_reason"]
    ]
    assert first is not None
    counts = usage["prompt_tokens"], usage["completion_tokens"]
    return Seen(first - began, ended - began, *counts, finish)


def load(stack: Stack) -> list[Seen]:
    with httpx.Client(timeout=HANG_S) as client, ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(lambda number: stream(client, stack.url, number), range(REQUESTS)))


def metrics(stack: Stack) -> MetricSamples:
    return MetricSamples(httpx.get(f"{stack.url}/metrics", timeout=HANG_S).text)


def grown(after: MetricSamples, before: MetricSamples) -> MetricSamples:
    """What came between two looks."""
    found = MetricSamples("")
    found.values = {key: value - before.values.get(key, 0.0) for key, value in after.values.items()}
    return found


def test_it_agrees_with_a_load_generator_and_with_the_engine(scripted_stack):
    scripted_stack.wait_ready()
    engine, before = scripted_stack.settled_engine(MODEL), metrics(scripted_stack)
    seen = load(scripted_stack)
    found = grown(metrics(scripted_stack), before)
    for finish, count in Counter(one.finish for one in seen).items():
        assert found.value("proxy_requests_total", outcome=finish, **LABELS) == count
    assert found.value("proxy_requests_active", **LABELS) == 0
    for kind in ("prompt", "completion"):
        tokens = sum(getattr(one, f"{kind}_tokens") for one in seen)
        assert found.value(f"proxy_{kind}_tokens_total", **LABELS) == tokens
        assert found.value(f"proxy_request_{kind}_tokens_count", **LABELS) == REQUESTS
    settled = scripted_stack.settled_engine(MODEL)
    for ours, theirs in (("prompt", "prompt_tokens"), ("completion", "generated_tokens")):
        counted = found.value(f"proxy_{ours}_tokens_total", **LABELS)
        assert settled[theirs] - engine[theirs] == counted, "under the same value of `model`"
    for name, field in (("time_to_first_token", "ttft_s"), ("request_duration", "duration_s")):
        family = f"proxy_{name}_seconds"
        assert found.value(f"{family}_count", **LABELS) == REQUESTS
        for quantile in (0.5, 0.9):
            own_s = quantile_of([getattr(one, field) for one in seen], quantile)
            ours = found.bucket_of_quantile(quantile, family, **LABELS)
            assert abs(ours - found.bucket_of(own_s, family, **LABELS)) <= 1, (family, quantile)
