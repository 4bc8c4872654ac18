"""Drains a Triton that serves remote proxies: marks it, and waits for streams. Called by `run`."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable

from proxy.operate.triton_server import probe, shm
from proxy.operate.triton_server.command import LOOPBACK, Place
from proxy.triton.target import Target

# The gauges of our engine model and of NVIDIA's C++ backend; as in docker/triton/wait_idle.py.
UNFINISHED = re.compile(
    r"^(?:engine_requests_unfinished\{[^}]*\}"
    r'|nv_trt_llm_request_metrics\{[^}]*request_type="active"[^}]*\}) (\S+)$',
    re.MULTILINE,
)
# Proxies check Triton every half second; until then they may send more requests.
QUIET_S = 2.0
EVERY_S = 0.25
Say = Callable[[str], None]


async def drain(place: Place, timeout_s: float, say: Say) -> None:
    """Returns when the engines have been idle for QUIET_S, or after the timeout."""
    say("draining: running streams may end, proxies refuse new requests (once more to hurry)")
    await _mark(place, say)
    if not await until_idle(place.metrics_port, timeout_s):
        say(f"DRAIN_TIMEOUT_S is over: ending streams after {timeout_s:g} s")


async def until_idle(
    metrics_port: int, at_most_s: float, *, quiet_s: float = QUIET_S, every_s: float = EVERY_S
) -> bool:
    """Whether Triton became idle in time. One that does not respond has ended: idle."""
    start = idle_since = time.monotonic()
    while (now := time.monotonic()) - start < at_most_s:
        try:
            _, exposition = await probe.get(LOOPBACK, metrics_port, "/metrics")
        except OSError:
            return True
        if unfinished(exposition):
            idle_since = now
        elif now - idle_since >= quiet_s:
            return True
        await asyncio.sleep(every_s)
    return False


def unfinished(exposition: str) -> float:
    """The number of running and waiting requests of all models."""
    return sum(float(value) for value in UNFINISHED.findall(exposition))


async def _mark(place: Place, say: Say) -> None:
    from proxy.triton import drain_mark  # which imports grpc

    region = shm.SHM / f"{place.shm_prefix}draining"
    region.write_bytes(b"\0")
    target = Target(f"{LOOPBACK}:{place.grpc_port}", secret=place.secret)
    if reason := await drain_mark.set_mark(target, f"/{region.name}"):
        say(f"tritonserver refused the mark that it is draining: {reason}")
