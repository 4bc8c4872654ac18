"""What waiting for nothing costs a request: the service with a fair queue, against one without.

    .venv/bin/python -m tests.bench.queue_cost [REQUESTS]

In process, over the scripted engine of the tests; runs alternate, and the medians are compared.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import time

from prometheus_client import CollectorRegistry

from triton_openai.proxy.domain.scheduling import FreeScheduler, Scheduler, Standing, Ticket
from triton_openai.proxy.scheduling.in_process import InProcessScheduler
from triton_openai.proxy.scheduling.limits import QueueLimits
from triton_openai.proxy.scheduling.observed import ObservedScheduler
from triton_openai.proxy.telemetry.queue_metrics import QueueMetrics

QUEUE, ROUNDS = "default/demo", 9


def _moved(standing: Standing) -> None:
    pass


async def _streams(scheduler: Scheduler, count: int) -> float:
    """Microseconds for each stream that finds a free row, from its ticket to its release."""
    began = time.perf_counter()
    for number in range(count):
        ticket = Ticket(queue=QUEUE, tenant=f"tenant {number % 50}", prompt_tokens=100)
        permit = await scheduler.acquire(ticket, moved=_moved, preempted=lambda: None)
        permit.meter(lambda: 200)
        permit.see_prompt(90)
        permit.release()
    return (time.perf_counter() - began) / count * 1e6


async def measured(requests: int) -> dict[str, float]:
    """Medians by scheduler."""
    limits = QueueLimits()
    observed = ObservedScheduler(
        InProcessScheduler(limits), QueueMetrics(CollectorRegistry()), longest_wait_s=60.0
    )
    found: dict[str, list[float]] = {"none": [], "fair": []}
    async with observed:
        observed.set_capacity(QUEUE, 8)
        for _ in range(ROUNDS):
            found["none"].append(await _streams(FreeScheduler(), requests))
            found["fair"].append(await _streams(observed, requests))
    return {name: statistics.median(runs) for name, runs in found.items()}


if __name__ == "__main__":
    medians = asyncio.run(measured(int(sys.argv[1]) if len(sys.argv) > 1 else 5_000))
    for name, microseconds in medians.items():
        sys.stdout.write(f"{name}: {microseconds:.1f} us a stream\n")
