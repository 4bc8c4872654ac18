"""A short run of the cost fuzzer with a fixed seed; `make fuzz` runs it for ten minutes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import pytest

from tests.long.fuzz.cases import seeds
from tests.long.fuzz.cost import Fuzzer, Thresholds, described
from tests.long.fuzz.cost_child import Meter
from tests.long.fuzz.cost_meter import CostMeter

SECONDS, TRIES, SEED = 60, 150, 16
SPENT_S, GROWN_BYTES = 0.03, 60_000_000
# Wider than those of `make fuzz`: this runs on any machine, in any state.
WIDE = Thresholds(loop_s=0.1, grown_bytes=150_000_000)


@pytest.fixture(scope="module")
def meter() -> Iterator[CostMeter]:
    with_limit = CostMeter()
    yield with_limit
    with_limit.close()


def test_no_small_request_holds_the_loop_or_takes_much_memory(meter):
    fuzzer = Fuzzer(meter, WIDE, SEED)
    fuzzer.run(SECONDS, TRIES)
    assert fuzzer.tried > len(list(seeds()))
    found = [described(offender) for offender in fuzzer.offenders.values()]
    assert not found, "\n".join(found)


def test_the_longest_step_of_the_loop_is_measured():
    async def two_steps() -> None:
        for seconds in (SPENT_S, SPENT_S / 10):
            spend(seconds)
            await asyncio.sleep(0)

    meter = Meter()
    try:
        asyncio.run(two_steps())
    finally:
        meter.close()
    assert SPENT_S <= meter.longest_s < meter.total_s


def spend(seconds: float) -> None:
    ends_at = time.thread_time() + seconds
    while time.thread_time() < ends_at:
        pass
