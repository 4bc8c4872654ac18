"""A short run of the cost fuzzer with a fixed seed; `make fuzz` runs it for ten minutes."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from tests.fuzz.cases import MOST_BYTES, Case, mutated, seeds
from tests.fuzz.cost import Fuzzer, Thresholds, described
from tests.fuzz.cost_meter import CostMeter

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
    found = [described(fuzzer.small(offender)) for offender in fuzzer.offenders.values()]
    assert not found, "\n".join(found)


def test_costs_are_seen(meter):
    """A body that is larger than any the fuzzer makes takes time to parse, and memory."""
    plain = Case("plain", "/chat/json", {"messages": [{"role": "user", "content": "hi"}]})
    meter.cost(plain)
    small = min(meter.cost(plain).total_s for _ in range(3))
    large = Case("large", "/chat/json", None, '{"x":[' + "[1]," * 400_000 + "[1]]}")
    cost = meter.cost(large)
    assert cost.total_s > 2 * small or cost.grown_bytes > 1_000_000
    assert cost.status >= 400


def test_a_request_that_takes_too_long_is_killed_and_the_next_one_is_answered():
    meter = CostMeter(limit_s=3.0)
    try:
        ready = Case("plain", "/chat/json", {"messages": [{"role": "user", "content": "hi"}]})
        assert meter.cost(ready).status == 200
        meter.pause()
        assert meter.cost(ready).is_killed
        assert meter.cost(ready).status == 200
    finally:
        meter.close()


def test_changes_keep_to_the_size_and_differ():
    chance = random.Random(SEED)
    known = list(seeds())
    made = [mutated(chance.choice(known), known, chance) for _ in range(300)]
    assert all(len(case.data) <= MOST_BYTES for case in made)
    assert len({case.data for case in made}) > 200
