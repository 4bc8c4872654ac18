"""A proxy that dies frees TensorRT-LLM, too: the shell ends its streams, whatever the runtime."""

from __future__ import annotations

import contextlib
from concurrent.futures import ThreadPoolExecutor

import httpx

from tests.fixtures.stack import eventually

STREAMS = 8


def test_kill_9_of_a_proxy_frees_the_llm_api(run, triton, stack):
    doomed = run(proxy_for=triton)
    eventually(doomed.is_ready, 110, "the second proxy is ready")
    before = triton.settled_engine("slow")
    body = {"model": "slow", "prompt": [75, 76], "max_tokens": 3000, "ignore_eos": True}

    def ask(_: int) -> None:
        with contextlib.suppress(httpx.TransportError):
            httpx.post(f"{doomed.url}/v1/completions", json=body, timeout=60)

    def unfinished() -> float:
        return triton.engine("slow")["requests_unfinished"]

    with ThreadPoolExecutor(STREAMS) as pool:
        asked = [pool.submit(ask, number) for number in range(STREAMS)]
        eventually(lambda: unfinished() == STREAMS, 30, "all are at the engine")
        doomed.process.kill()
        eventually(lambda: not unfinished(), 5, "the engine is free")
        assert all(one.result() is None for one in asked)
    cancelled = triton.settled_engine("slow")["requests_cancelled"] - before["requests_cancelled"]
    assert cancelled == STREAMS
