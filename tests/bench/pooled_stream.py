"""What pools add to a token, in this process: an engine's stream by itself, and through a pool.

    .venv/bin/python -m tests.bench.pooled_stream

CPU in microseconds for a delta; the ways alternate, medians of RUNS runs. A token through the whole
proxy costs some tens of microseconds: see tests.bench.front.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing

from proxy.domain.engine import EngineRequest
from proxy.domain.output import TokenDelta
from tests.doubles.engine import deltas
from tests.doubles.scripted_pools import PoolStand, ScriptedTriton

DELTAS, RUNS = 20_000, 31
SCRIPT = deltas("x" * DELTAS)


class Flood:
    """An engine that gives the same deltas at once."""

    async def generate(self, request: EngineRequest) -> AsyncGenerator[TokenDelta, None]:
        for delta in SCRIPT:
            yield delta


async def cpu_us(stream: AsyncGenerator[TokenDelta, None]) -> float:
    """For a delta."""
    began = time.process_time()
    async with aclosing(stream) as found:
        async for _ in found:
            pass
    return (time.process_time() - began) / len(SCRIPT) * 1e6


async def main() -> None:
    triton = ScriptedTriton()
    triton.engine = Flood()
    async with PoolStand({"a:1": triton}) as stand:
        request, runs = stand.request(), {"engine": [], "pool": []}
        for _ in range(RUNS):
            runs["engine"].append(await cpu_us(triton.engine.generate(request)))
            runs["pool"].append(await cpu_us(stand.engine.generate(request)))
    for name, found in runs.items():
        sys.stdout.write(f"{name:8} {statistics.median(found):.3f} us for a delta\n")


if __name__ == "__main__":
    asyncio.run(main())
