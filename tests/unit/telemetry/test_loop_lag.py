"""loop_lag: the request that holds up the event loop is measured and named."""

from __future__ import annotations

import asyncio
import sys
import time

import pytest
import uvloop
from prometheus_client import CollectorRegistry, Histogram
from structlog.testing import capture_logs

from triton_openai.proxy.telemetry.loop_lag import LoopLag, name_task

WARN_S = 0.05
TRIES = 10  # one warning a second is logged, and a pause of a busy machine may take its place


def busy_in_python() -> None:
    end = time.monotonic() + 6 * WARN_S
    while time.monotonic() < end:
        pass


def busy_in_c() -> None:
    """Holds the interpreter throughout: no other thread runs."""
    sys.setswitchinterval(0.005)
    end = time.monotonic() + 6 * WARN_S
    number = 3**200_000
    while time.monotonic() < end:
        str(number)


def asleep() -> None:
    time.sleep(6 * WARN_S)


def lagged(*work) -> tuple[list[dict], Histogram]:
    """The warnings, and what was measured, while each piece of work held up the loop."""
    histogram = Histogram("lag", "lag", registry=CollectorRegistry(), buckets=(WARN_S, 60))

    async def request(at: int, one) -> None:
        name_task(f"req_{at}", "/v1/x")
        await asyncio.sleep(0.1)
        one()
        await asyncio.sleep(0.1)

    async def run() -> None:
        with LoopLag(histogram, warn_s=WARN_S).measured():
            for at, one in enumerate(work):
                await asyncio.create_task(request(at, one))

    sys.set_int_max_str_digits(0)
    with capture_logs() as lines:
        uvloop.run(run())
    sys.set_int_max_str_digits(4300)
    return [line for line in lines if line["event"] == "event loop late"], histogram


def held(histogram: Histogram) -> float:
    """How many beats were later than the threshold."""
    [metric] = histogram.collect()
    counts = {
        sample.labels.get("le"): sample.value
        for sample in metric.samples
        if sample.name.endswith("_bucket")
    }
    return counts["+Inf"] - counts[str(WARN_S)]


@pytest.mark.parametrize("work", [busy_in_python, busy_in_c, asleep])
def test_a_warning_names_the_request(work):
    for _ in range(TRIES):
        lines, histogram = lagged(work)
        assert held(histogram) >= 1
        named = [(one.get("request_id"), one.get("path")) for one in lines]
        if named == [("req_0", "/v1/x")]:
            break
    assert named == [("req_0", "/v1/x")]
    [line] = [one for one in lines if one.get("request_id") == "req_0"]
    assert line["lag_ms"] >= WARN_S * 1000
    assert any(work.__name__ in frame for frame in line["frames"])


def test_the_log_is_bounded():
    lines, histogram = lagged(asleep, asleep, asleep)
    assert len(lines) <= 2
    assert held(histogram) >= 3


def test_what_is_no_request_is_named_by_its_task():
    async def run() -> None:
        histogram = Histogram("lag", "lag", registry=CollectorRegistry())
        with LoopLag(histogram, warn_s=WARN_S).measured():
            await asyncio.sleep(0.1)
            asyncio.get_running_loop().call_soon(asleep)
            await asyncio.sleep(0.1)

    with capture_logs() as lines:
        uvloop.run(run())
    [line] = [one for one in lines if any("asleep" in frame for frame in one.get("frames", ()))]
    assert "request_id" not in line
