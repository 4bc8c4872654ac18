"""Mixed streams on a stack of its own for a while, and what is wrong when they have ended."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import httpx

from tests.fixtures.stack import HANG_S, PLAIN, Stack, eventually
from tests.long.hostile import stand
from tests.long.soak import footprint
from tests.long.soak.callers import CHAT, HI, Callers
from tests.long.soak.footprint import Footprint

MODELS = ("demo", "steady")
AT_ONCE = 8
PERMITS = 3 * AT_ONCE  # of the proxy; a caller never has more than one, but it may leave late
SAMPLES = 60  # in all
# Of an engine that nobody asks for anything.
IDLE = ("requests_unfinished", "requests_waiting", "rows_prefilling", "rows_decoding")
IDLE += ("kv_row_bytes",)
# One full context: cached prefixes fill it at once, so that what still grows is a leak.
SMALL_CACHE = {"kv_cache_mb": 32}
LONG = {"model": "steady", "messages": HI, "max_tokens": 3_000, "stream": True}


@dataclass(slots=True)
class Report:
    seconds: float
    counts: dict[str, int]
    samples: list[Footprint]
    faults: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        """A table, and the faults."""
        grown = footprint.growth(self.samples)
        lines = [f"{sum(self.counts.values())} answers in {self.seconds:.0f} s:"]
        lines += [f"  {kind:<14}{count:>7}" for kind, count in sorted(self.counts.items())]
        lines += ["memory, MB: at the end, and grown in the second half"]
        last = self.samples[-1].rss_bytes
        lines += [f"  {name:<22}{last[name] / 1e6:>7.0f}{grown[name] / 1e6:>7.1f}" for name in last]
        return "\n".join([*lines, *(f"FAULT {fault}" for fault in self.faults)])


def soaked(seconds: float, *, seed: int = 1) -> Report:
    """A stack is started, and stopped at the end."""
    with stand.running(onnx=SMALL_CACHE, MAX_CONCURRENT_REQUESTS=str(PERMITS)) as stack:
        callers = Callers(stack.url, at_once=AT_ONCE, seed=seed)
        asyncio.run(callers.run_each())
        assert_idle(stack)
        before, began = Footprint.of(stack), time.monotonic()
        samples = run(stack, callers, seconds)
        took_s = time.monotonic() - began
        assert_idle(stack)
        faults = [*callers.failures, *footprint.faults(samples, before, Footprint.of(stack))]
        faults += permits_lost(stack)
        assert_idle(stack)
    return Report(took_s, dict(callers.counts), samples, faults)


def run(stack: Stack, callers: Callers, seconds: float) -> list[Footprint]:
    """What the stack held meanwhile."""
    ends_at, ended, samples = time.monotonic() + seconds, threading.Event(), [Footprint.of(stack)]

    def watch() -> None:
        while not ended.wait(seconds / SAMPLES):
            samples.append(Footprint.of(stack))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        asyncio.run(callers.run(lambda: time.monotonic() > ends_at))
    finally:
        ended.set()
        watcher.join()
    return samples


def assert_idle(stack: Stack) -> None:
    """Nothing is under way any more, in the proxy, in Triton and in the engines."""
    eventually(lambda: not under_way(stack), 20, f"idle: {under_way(stack)}")


def under_way(stack: Stack) -> dict[str, float]:
    """All that is not zero of what must be."""
    found = {
        f"{name} of {model}": value
        for model in MODELS
        for name, value in stack.engine(model).items()
        if name in IDLE
    }
    found["requests of the proxy"] = total(f"{stack.url}/metrics", "proxy_requests_active")
    triton = f"http://127.0.0.1:{stack.triton_metrics_port}/metrics"
    found["requests of Triton"] = total(triton, "nv_inference_pending_request_count")
    return {name: value for name, value in found.items() if value}


def total(url: str, metric: str) -> float:
    lines = PLAIN.get(url).text.splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(f"{metric}{{"))


def permits_lost(stack: Stack) -> list[str]:
    """As many streams as there are permits run at once, and the next one is refused."""
    may_leave = threading.Event()
    with ThreadPoolExecutor(PERMITS) as pool:
        held = [pool.submit(hold, stack.url, may_leave.wait) for _ in range(PERMITS)]
        active = f"{stack.url}/metrics"
        refusals = [one for one in held if one.done()]
        eventually(
            lambda: (
                total(active, "proxy_requests_active") + sum(one.done() for one in held) >= PERMITS
            ),
            20,
            "all have begun",
        )
        further = PLAIN.post(f"{stack.url}{CHAT}", json=LONG).status_code
        may_leave.set()
        refusals = [one.result() for one in held if one.result() != 200]
    found = [f"{len(refusals)} of {PERMITS} permits are lost"] if refusals else []
    return found + ([] if further == 429 else [f"one stream too many is answered with {further}"])


def hold(url: str, wait: Callable[[float], bool]) -> int:
    """The status of a stream that is held until all may leave."""
    with httpx.stream("POST", f"{url}{CHAT}", json=LONG, timeout=HANG_S, verify=False) as answer:
        if answer.status_code == 200:
            wait(HANG_S)
        return answer.status_code
