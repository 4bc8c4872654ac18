"""What viewers of the live status cost the proxy: `python -m tests.long.page.viewers`.

The proxy is a process of its own, with the series of 50 tenants, 20 endpoints and 20 requests that
run all the time.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import psutil

from tests.fixtures.application import application, operations
from tests.fixtures.own_server import served
from tests.fixtures.stack import HANG_S, ROOT
from tests.long.page.engine import PageEngine

TENANTS, ENDPOINTS, RUNNING, VIEWERS = 50, 20, 20, 10
CHAT = {"model": "demo", "stream": True, "messages": [{"role": "user", "content": "a question"}]}


class Slow(PageEngine):
    """Streams that run on without work: only the status costs anything."""

    async def generate(self, request):
        async for delta in super().generate(request):
            yield delta
            if "endless" in (request.text or ""):
                await asyncio.sleep(3600)


async def serve() -> None:
    """Prints its address, and serves until its input ends."""
    own = operations(*(f"10.0.0.{number}:8001" for number in range(ENDPOINTS)))
    app = application(Slow(), admin="on", tenant_from_metadata=True, operations=own)
    async with app.router.lifespan_context(app), served(app, most=100) as (host, port):
        print(f"http://{host}:{port}", flush=True)  # noqa: T201, the parent reads it
        await asyncio.to_thread(sys.stdin.read)


@contextmanager
def proxy() -> Iterator[tuple[str, psutil.Process]]:
    command = [sys.executable, "-m", "tests.long.page.viewers", "serve"]
    with subprocess.Popen(
        command,
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as child:
        assert child.stdout is not None
        try:
            url = next(line for line in child.stdout if line.startswith("http"))
            yield url.strip(), psutil.Process(child.pid)
        finally:
            child.kill()


async def cost(process: psutil.Process, url: str, viewers: int, *, seconds: float) -> float:
    """The share of a core that the proxy takes with so many viewers."""
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(base_url=url, timeout=HANG_S, limits=limits) as http:

        async def view(begun: asyncio.Event) -> None:
            async with http.stream("GET", "/metrics/live") as answer:
                async for _ in answer.aiter_bytes():
                    begun.set()

        begun = [asyncio.Event() for _ in range(viewers)]
        tasks = [asyncio.create_task(view(one)) for one in begun]
        for one in begun:
            await asyncio.wait_for(one.wait(), HANG_S)
        before, began = process.cpu_times(), time.monotonic()
        await asyncio.sleep(seconds)
        after, took_s = process.cpu_times(), time.monotonic() - began
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return (after.user + after.system - before.user - before.system) / took_s


async def measured(url: str, process: psutil.Process, *, seconds: float) -> dict[str, float]:
    """Shares of a core: `none`, `ten` viewers, and `more`, what they add. Alternating rounds."""
    async with httpx.AsyncClient(base_url=url, timeout=HANG_S) as http:
        for number in range(TENANTS):
            body = {**CHAT, "stream": False, "metadata": {"tenant_id": f"tenant{number}"}}
            (await http.post("/v1/chat/completions", json=body)).raise_for_status()
        endless = {**CHAT, "messages": [{"role": "user", "content": "endless"}]}
        running = [http.build_request("POST", "/v1/chat/completions", json=endless)] * RUNNING
        answers = [await http.send(each, stream=True) for each in running]
        found: dict[str, float] = {"none": 0.0, "ten": 0.0}
        for _ in range(2):
            found["none"] += await cost(process, url, 0, seconds=seconds) / 2
            found["ten"] += await cost(process, url, VIEWERS, seconds=seconds) / 2
        for answer in answers:
            await answer.aclose()
    return {**found, "more": found["ten"] - found["none"]}


if __name__ == "__main__":
    if sys.argv[1:] == ["serve"]:
        asyncio.run(serve())
    else:
        with proxy() as (url, process):
            shares = asyncio.run(measured(url, process, seconds=30))
        for name, share in shares.items():
            print(f"{name}: {share:.2%} of a core")  # noqa: T201, a command
