"""/metrics over the real tritonserver agrees with what callers got and with the engine."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import httpx

from tests.fixtures.metric_samples import MetricSamples
from tests.fixtures.stack import HANG_S, Stack

REQUESTS, AT_ONCE = 100, 4
LABELS = {"model": "steady"}


def metrics(stack: Stack) -> dict[str, float]:
    """The values with these labels, by name; of outcomes by `outcome`."""
    page = MetricSamples(httpx.get(f"{stack.url}/metrics", timeout=HANG_S).text)
    found = {name: value for (name, labels), value in page.values.items() if dict(labels) == LABELS}
    outcomes = ("stop", "length")
    name = "proxy_requests_total"
    return {**found, **{each: page.value(name, outcome=each, **LABELS) for each in outcomes}}


def test_it_agrees_with_the_callers_and_with_the_engine(scripted_stack):
    scripted_stack.wait_ready()
    engine, before = scripted_stack.settled_engine("steady"), metrics(scripted_stack)
    with httpx.Client(timeout=HANG_S) as client, ThreadPoolExecutor(AT_ONCE) as pool:

        def answer(number: int) -> dict:
            messages = [{"role": "user", "content": "Hello!"}]
            body = {**LABELS, "messages": messages, "max_tokens": 3 + number % 9}
            return client.post(f"{scripted_stack.url}/v1/chat/completions", json=body).json()

        answers = list(pool.map(answer, range(REQUESTS)))
    after, settled = metrics(scripted_stack), scripted_stack.settled_engine("steady")
    for finish, count in Counter(one["choices"][0]["finish_reason"] for one in answers).items():
        assert after[finish] - before[finish] == count
    assert after["proxy_requests_active"] == 0
    for kind, counter in (("prompt", "prompt_tokens"), ("completion", "generated_tokens")):
        tokens = sum(one["usage"][f"{kind}_tokens"] for one in answers)
        name, count = f"proxy_{kind}_tokens_total", f"proxy_request_{kind}_tokens_count"
        assert after[name] - before.get(name, 0) == tokens
        assert after[count] - before.get(count, 0) == REQUESTS
        assert settled[counter] - engine[counter] == tokens, "under the same value of `model`"
