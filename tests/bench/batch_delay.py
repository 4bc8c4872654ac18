"""How much later a batch makes the first tokens of others, over four rows of the ONNX demo engine.

    .venv/bin/python -m tests.bench.batch_delay [SECONDS] [ROUNDS]

Requests come at random times, so many that they use 70 % of the rows. Windows without a batch and
with one of 500 lines take turns, each pair with the same arrivals; the figures are of all windows.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from tempfile import TemporaryDirectory
from typing import Any

import httpx

from tests.bench.figures import percentile_ms
from tests.fixtures.tenant_load import TIMEOUT_S, LoadedTenant, loaded, stack

ROWS, LOAD, LINES, TOKENS = 4, 0.7, 500, 32
PATH = "/v1/completions"


def body(prompt: str, tokens: int = TOKENS) -> dict[str, object]:
    return {"model": "demo", "prompt": prompt, "max_tokens": tokens, "ignore_eos": True}


async def rate(url: str, tenant: LoadedTenant, seconds: float) -> float:
    """Answers in a second with all rows in use."""
    async with loaded(url, "demo", [tenant]):
        await asyncio.sleep(2)
        tenant.tokens = 0
        await asyncio.sleep(seconds)
    return tenant.tokens / TOKENS / seconds


async def first_token_s(client: httpx.AsyncClient, number: int) -> float:
    began = time.perf_counter()
    asked = {**body(f"request {number}: once upon a time"), "stream": True}
    async with client.stream("POST", PATH, json=asked) as answer:
        assert answer.status_code == 200, await answer.aread()
        first = 0.0
        async for line in answer.aiter_lines():
            if line.startswith("data: {") and not first:
                first = time.perf_counter() - began
    return first


async def window(client: httpx.AsyncClient, per_s: float, seconds: float, seed: int) -> list[float]:
    draw, tasks, end = random.Random(seed), [], time.perf_counter() + seconds
    while time.perf_counter() < end:
        await asyncio.sleep(draw.expovariate(per_s))
        tasks.append(asyncio.create_task(first_token_s(client, draw.randrange(10**9))))
    return [*await asyncio.gather(*tasks)]


async def begin(client: httpx.AsyncClient) -> str:
    text = "".join(
        json.dumps({"custom_id": f"{n}", "method": "POST", "url": PATH, "body": body(f"line {n}")})
        + "\n"
        for n in range(LINES)
    )
    form = {"files": {"file": ("in.jsonl", text)}, "data": {"purpose": "batch"}}
    file = (await client.post("/v1/files", **form)).json()["id"]
    asked = {"input_file_id": file, "endpoint": PATH, "completion_window": "24h"}
    return (await client.post("/v1/batches", json=asked)).json()["id"]


async def ended(client: httpx.AsyncClient, batch: str) -> dict[str, Any]:
    for _ in range(600):
        found = (await client.get(f"/v1/batches/{batch}")).json()
        if found["status"] in ("cancelled", "completed"):
            return found
        await asyncio.sleep(0.1)
    raise TimeoutError(found)


async def measure(url: str, key: str, seconds: float, rounds: int) -> None:
    tenant = LoadedTenant(name="full", streams=ROWS, lengths=(TOKENS,), key=key)
    full = await rate(url, tenant, seconds)
    headers = {"authorization": f"Bearer {key}"}
    alone, beside, lines = list[float](), list[float](), 0
    async with httpx.AsyncClient(
        base_url=url, headers=headers, timeout=TIMEOUT_S, limits=httpx.Limits(max_connections=None)
    ) as client:
        await window(client, LOAD * full, 3, 0)
        for seed in range(1, rounds + 1):
            alone += await window(client, LOAD * full, seconds, seed)
            batch = await begin(client)
            await asyncio.sleep(1)
            beside += await window(client, LOAD * full, seconds, seed)
            await client.post(f"/v1/batches/{batch}/cancel")
            found = await ended(client, batch)
            lines += found["request_counts"]["completed"]
    sys.stdout.write(f"all rows in use: {full:.1f} answers/s; load {LOAD * full:.1f}/s\n")
    for name, found in (("alone", alone), ("beside a batch", beside)):
        figures = ", ".join(f"p{each} {percentile_ms(found, each):.1f}" for each in (50, 90, 99))
        sys.stdout.write(f"  first token {name}: {figures} ms of {len(found)}\n")
    sys.stdout.write(f"  lines of batches that were answered meanwhile: {lines}\n")


def main(seconds: float, rounds: int) -> None:
    tenant = LoadedTenant(name="full", streams=ROWS)
    with TemporaryDirectory() as files, stack(ROWS, tenant, FILES_URL=files) as running:
        asyncio.run(measure(running.url, tenant.key, seconds, rounds))


if __name__ == "__main__":
    given = sys.argv[1:] + ["20", "3"][len(sys.argv) - 1 :]
    main(float(given[0]), int(given[1]))
