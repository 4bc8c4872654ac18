"""What waits and runs in an engine, as gateways, the proxy and its log see it."""

from __future__ import annotations

import asyncio
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


def waiting(stack) -> float:
    """Requests to `endless` that wait for a row, in the engine and in the proxy."""
    page = httpx.get(f"{stack.url}/metrics", timeout=HANG_S).text
    of_proxy = re.search(r'^proxy_fair_queue_waiting{queue="default/endless"} (\S+)$', page, re.M)
    assert of_proxy is not None
    return stack.engine("endless")["requests_waiting"] + float(of_proxy[1])
