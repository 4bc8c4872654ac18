"""loop_lag: the request that holds up the event loop is measured and named."""

from __future__ import annotations

import asyncio
import sys
import time

import pytest
import uvloop
from prometheus_client import CollectorRegistry, Histogram
from structlog.testing import capture_logs

from proxy.telemetry.loop_lag import LoopLag
from proxy.telemetry.request_log import RequestLog

WARN_S = 0.05
BUSY_S = 6 * WARN_S  # of CPU time: what a busy machine takes away counts for nothing


def busy_in_python() -> None:
    end = time.thread_time() + BUSY_S
    while time.thread_time() < end:
        pass


def busy_in_c() -> None:
    """Holds the interpreter throughout: no other thread runs."""
    sys.setswitchinterval(0.005)
    end = time.thread_time() + BUSY_S
    number = 3**200_000
    while time.thread_time() < end:
        str(number)


@pytest.mark.parametrize("work", [busy_in_python, busy_in_c])
def test_a_warning_names_the_request(work):
    registry = CollectorRegistry()
    histogram = Histogram("lag", "lag", registry=registry, buckets=(WARN_S, 60))

    async def run() -> None:
        measured = LoopLag(histogram, warn_s=WARN_S).measured()
        with measured, RequestLog().recorded("POST", "/v1/x", request_id="req_0"):
            await asyncio.sleep(0.1)
            work()
            await asyncio.sleep(0.1)

    sys.set_int_max_str_digits(0)
    with capture_logs() as lines:
        uvloop.run(run())
    sys.set_int_max_str_digits(4300)
    [line] = [line for line in lines if line["event"] == "event loop late"]
    on_time = registry.get_sample_value("lag_bucket", {"le": str(WARN_S)})
    assert registry.get_sample_value("lag_count") > on_time
    assert (line["request_id"], line["path"]) == ("req_0", "/v1/x")
    assert line["lag_ms"] >= WARN_S * 1000
    assert line["cpu_ms"] >= BUSY_S * 1000
    assert any(work.__name__ in frame for frame in line["frames"])


def test_the_work_of_the_start_is_measured_and_no_warning():
    registry = CollectorRegistry()
    histogram = Histogram("lag", "lag", registry=registry, buckets=(WARN_S, 60))

    async def run() -> None:
        with LoopLag(histogram, warn_s=WARN_S).measured():
            busy_in_python()
            await asyncio.sleep(0.1)

    with capture_logs() as lines:
        uvloop.run(run())
    assert not lines
    assert registry.get_sample_value("lag_count") > registry.get_sample_value(
        "lag_bucket", {"le": str(WARN_S)}
    )
