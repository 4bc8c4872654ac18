"""What waits and runs in an engine, as gateways, the proxy and its log see it."""

from __future__ import annotations

import asyncio
import json
import re
import time

import httpx
import pytest

from proxy.domain.endpoints import EngineLoad
from proxy.pools.engine_load import UNKNOWN, LoadReader
from tests.fixtures.running import ROWS
from tests.fixtures.stack import HANG_S, eventually

NVIDIAS = re.compile(
    r"^nv_trt_llm_(request|kv_cache_block)_metrics\{"
    r'(?=[^}]*model="endless_engine")(?=[^}]*version="1")'
    r'[^}]*(?:request_type|kv_cache_block_type)="(\w+)"[^}]*\} (\S+)$',
    re.MULTILINE,
)


def nvidias_metrics(stack) -> dict[tuple[str, str], float]:
    """The load of `endless`, as gateways scrape it, by metric family and kind.

    A series that appeared twice would fail here.
    """
    text = httpx.get(f"http://127.0.0.1:{stack.triton_metrics_port}/metrics").text
    found = NVIDIAS.findall(text)
    values = {(family, kind): float(value) for family, kind, value in found}
    assert len(values) == len(found)
    return values


def test_gateways_find_the_engines_load_under_nvidias_names(stack):
    """The Gateway API Inference Extension and llm-d read waiting, scheduled, fraction, tokens_per
    and max.
    """
    stack.settled_engine("endless")
    idle = nvidias_metrics(stack)
    assert (idle["request", "max"], idle["kv_cache_block", "tokens_per"]) == (ROWS, 16)
    assert idle["kv_cache_block", "max"] == idle["kv_cache_block", "free"] > 0
    zeros = [("request", "waiting"), ("request", "scheduled"), ("kv_cache_block", "fraction")]
    assert [idle[key] for key in zeros] == [0, 0, 0]
    busy = asyncio.run(busy_metrics(stack))
    assert busy["request", "scheduled"] == ROWS
    assert 1 <= busy["request", "waiting"] <= ROWS
    blocks = {kind: value for (family, kind), value in busy.items() if family != "request"}
    assert blocks["used"] >= 1
    assert blocks["used"] + blocks["free"] == blocks["max"]
    assert blocks["fraction"] == pytest.approx(blocks["used"] / blocks["max"])


def test_the_proxy_reads_the_engines_load_from_the_same_page(stack):
    stack.settled_engine("endless")
    url = f"http://127.0.0.1:{stack.triton_metrics_port}/metrics"

    async def read() -> tuple[EngineLoad, EngineLoad, EngineLoad]:
        async with httpx.AsyncClient() as http:
            reader = LoadReader(url, http, clock=time.monotonic, timeout_s=HANG_S)
            before = reader.load
            await reader.read()
            return before, reader.load, reader.load_of("endless_engine")

    idle = EngineLoad(waiting=0, running=0, kv_in_use=0.0, is_stale=False)
    assert asyncio.run(read()) == (UNKNOWN, idle, idle)


async def busy_metrics(stack) -> dict[tuple[str, str], float]:
    """The metrics while twice as many requests as rows run or wait, some of them in the proxy."""
    body = {"model": "endless", "prompt": "x", "ignore_eos": True, "max_tokens": 4_000}
    seen: list[dict[tuple[str, str], float]] = []

    def are_all_there() -> bool:
        seen.append(nvidias_metrics(stack))
        running, waiting = (seen[-1]["request", kind] for kind in ("scheduled", "waiting"))
        used, most, fraction = (
            seen[-1]["kv_cache_block", kind] for kind in ("used", "max", "fraction")
        )
        # gauges are set one after the other, while the answers grow
        is_of_one_moment = fraction == pytest.approx(used / most)
        return running == ROWS and waiting > 0 and used > 0 and is_of_one_moment

    async with httpx.AsyncClient(base_url=stack.url, timeout=HANG_S) as http:
        asked = [http.post("/v1/completions", json=body) for _ in range(2 * ROWS)]
        tasks = [asyncio.create_task(one) for one in asked]
        await asyncio.to_thread(eventually, are_all_there, 60, "some of them wait")
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return seen[-1]


def test_what_waits_for_a_row_is_logged_as_queueing(stack):
    """All rows are taken; the request that comes then waits at least as long as we watch it."""

    stack.settled_engine("endless")
    late, waited_ms = asyncio.run(behind_long_ones(stack))
    assert late["usage"]["completion_tokens"] == 2
    line = eventual_line(stack, late["id"])
    assert waited_ms <= line["queue_ms"] <= line["duration_ms"]
    assert line["queue_ms"] + line["inference_ms"] <= line["duration_ms"] + 0.2
    text = httpx.get(f"{stack.url}/metrics").text
    assert 'proxy_queue_time_seconds_count{model="endless"}' in text
    assert 'proxy_inter_token_latency_seconds_count{model="endless"}' in text


def waiting(stack) -> float:
    """Requests to `endless` that wait for a row, in the engine and in the proxy."""
    page = httpx.get(f"{stack.url}/metrics", timeout=HANG_S).text
    of_proxy = re.search(r'^proxy_fair_queue_waiting{queue="default/endless"} (\S+)$', page, re.M)
    assert of_proxy is not None
    return stack.engine("endless")["requests_waiting"] + float(of_proxy[1])


async def behind_long_ones(stack) -> tuple[dict, float]:
    """The answer to a request behind three times as many as there are rows, and how long it waited
    at least.
    """
    body = {"model": "endless", "prompt": "x", "ignore_eos": True}

    def is_queued() -> bool:
        return waiting(stack) >= 2 * ROWS

    def is_last() -> bool:
        return waiting(stack) >= 2 * ROWS + 1

    async with httpx.AsyncClient(base_url=stack.url, timeout=HANG_S) as http:

        def ask(max_tokens: int) -> asyncio.Task:
            asked = http.post("/v1/completions", json={**body, "max_tokens": max_tokens})
            return asyncio.create_task(asked)

        long = [ask(4_000) for _ in range(3 * ROWS)]
        await asyncio.to_thread(eventually, is_queued, 60, "two thirds of them wait")
        late = ask(2)
        await asyncio.to_thread(eventually, is_last, 60, "one more waits")
        seen_at = time.monotonic()
        await asyncio.sleep(0.3)
        waited_ms = (time.monotonic() - seen_at) * 1000
        for one in long:
            one.cancel()
        await asyncio.gather(*long, return_exceptions=True)
        return (await late).json(), waited_ms


def eventual_line(stack, request_id: str) -> dict:
    """The log line of a request, which is written after its answer."""

    def found() -> list[dict]:
        text = stack.log.read_text().splitlines()
        lines = [json.loads(line) for line in text if line.startswith("{")]
        return [line for line in lines if line.get("id") == request_id]

    eventually(found, 10, f"a log line of {request_id}")
    return found()[0]
