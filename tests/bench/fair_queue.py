"""What the fair queue costs on the event loop.

    .venv/bin/python tests/bench/fair_queue.py

Prints the median and the 90th percentile of repeated runs, in microseconds.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Callable
from itertools import count, islice

from proxy.domain.scheduling import Scheduler, Standing
from proxy.scheduling.fair_queue import FairQueue
from proxy.scheduling.in_process import STANDINGS_AT_ONCE, InProcessScheduler
from proxy.scheduling.places import QueueLimits
from tests.doubles.queued_stream import QueuedStream
from tests.fixtures.schedulers import QUEUE, ticket

WAITING = 10_000
RUNS, CALLS = 100, 100
LIMITS = QueueLimits(waiting=2 * WAITING, waiting_per_tenant=2 * WAITING)
TICKET = ticket(prompt_tokens=100, may_yield=True)


def ignore(standing: Standing) -> None:
    pass


def report(name: str, times_s: list[float]) -> None:
    us = sorted(each * 1e6 for each in times_s)
    p90 = statistics.quantiles(us, n=10)[-1]
    print(f"{statistics.median(us):8.2f} {p90:8.2f}  {name}")  # noqa: T201  it is a report


def timed(call: Callable[[], object], calls: int = CALLS, runs: int = RUNS) -> list[float]:
    times = []
    for _ in range(runs):
        began = time.perf_counter()
        for _ in range(calls):
            call()
        times.append((time.perf_counter() - began) / calls)
    return times


async def acquired(scheduler: Scheduler) -> list[float]:
    """A free row, and nobody who waits."""
    scheduler.set_capacity(QUEUE, 64)
    times = []
    for _ in range(RUNS):
        began = time.perf_counter()
        for _ in range(CALLS):
            permit = await scheduler.acquire(TICKET, moved=ignore, preempted=int)
            permit.meter(int)
            permit.release()
        times.append((time.perf_counter() - began) / CALLS)
    return times


def full(tenants: int) -> FairQueue:
    queue = FairQueue(LIMITS, time.monotonic)
    queue.set_capacity(1)
    for n in range(WAITING):
        queue.enter(QueuedStream(ticket(f"t{n % tenants}", prompt_tokens=n % 1_000)))
    return queue


def decisions(tenants: int) -> None:
    running: list[QueuedStream] = []

    class Noted(QueuedStream):
        __slots__ = ()

        def granted(self) -> None:
            running[:] = [self]

    queue, numbers = FairQueue(LIMITS, time.monotonic), count()
    queue.set_capacity(1)

    def enter() -> QueuedStream:
        stream = Noted(ticket(f"t{next(numbers) % tenants}", prompt_tokens=50))
        queue.enter(stream)
        return stream

    def decide() -> None:
        queue.release(running[0])
        enter()

    for _ in range(WAITING):
        enter()
    report(f"one ends, the next begins, one more waits: {tenants} tenants", timed(decide))
    report(f"one enters and is cancelled: {tenants} tenants", timed(lambda: queue.leave(enter())))


def standings(tenants: int) -> None:
    """The longest part of a pass is what holds the event loop."""
    queue, longest, whole = full(tenants), [], []
    for _ in range(20):
        parts = []
        standings = queue.standings()
        while True:
            began = time.perf_counter()
            steps = sum(1 for _ in islice(standings, STANDINGS_AT_ONCE))
            parts.append(time.perf_counter() - began)
            if steps < STANDINGS_AT_ONCE:
                break
        longest.append(max(parts))
        whole.append(sum(parts))
    report(f"the longest part of a pass over {WAITING}: {tenants} tenants", longest)
    report(f"a whole pass over {WAITING}: {tenants} tenants", whole)


async def main() -> None:
    async with InProcessScheduler(LIMITS) as scheduler:
        report("acquire, meter and release", await acquired(scheduler))
    for tenants in (1, 1_000, WAITING):
        decisions(tenants)
        standings(tenants)


if __name__ == "__main__":
    asyncio.run(main())
