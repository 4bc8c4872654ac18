"""A short run of the cost fuzzer with a fixed seed; `make fuzz` runs it for ten minutes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.long.fuzz.cases import seeds
from tests.long.fuzz.cost import CostMeter, Fuzzer, Thresholds, described

SECONDS, TRIES, SEED = 60, 150, 16
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
