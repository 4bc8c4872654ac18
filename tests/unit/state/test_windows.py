"""Limits hold in every window, are usable nearly whole, and a refusal's wait is the true one."""

from __future__ import annotations

import random

import pytest

from proxy.state.memory_meters import InProcessLedger
from proxy.state.meters import Grant, LedgerUnavailable, Refusal
from tests.fixtures.ledgers import Clock
from tests.unit.state.test_ledgers import DAY, MINUTE, S, month, rate, window


def in_any_window(taken: list[tuple[int, int]], span_us: int) -> int:
    """The most that was taken in any half-open window of this length."""
    most = total = first = 0
    for at, amount in taken:
        total += amount
        while taken[first][0] <= at - span_us:
            total -= taken[first][1]
            first += 1
        most = max(most, total)
    return most


@pytest.mark.parametrize("span_us", [MINUTE, DAY])
@pytest.mark.parametrize("limit", [1, 7, 60, 5_000])
def test_never_one_too_many_in_any_window_and_99_percent_usable(limit: int, span_us: int):
    """A caller that takes whatever it gets, at random times and in random amounts."""
    rng, clock = random.Random(limit), Clock()
    ledger, meter = InProcessLedger(clock), window("t.w", limit, span_us)
    taken: list[tuple[int, int]] = []
    begin = clock.now
    while clock.now < begin + 20 * span_us:
        amount = rng.randint(1, max(limit // 200, 1))
        result = ledger.take([meter], [amount])
        if isinstance(result, Grant):
            taken.append((clock.now, amount))
        else:
            clock.now += rng.choice([1, result.wait_us // 2, result.wait_us])
    assert in_any_window(taken, span_us) <= limit
    rest = span_us / 128 + span_us / 20  # the window's grain, and the last window is not over
    assert sum(amount for _, amount in taken) >= 0.99 * limit * (20 * span_us - rest) / span_us


@pytest.mark.parametrize(("per_second", "burst"), [(1, 1), (3, 1), (10, 5), (700, 20)])
def test_a_rate_lets_a_burst_through_and_never_more_than_its_rate(per_second: int, burst: int):
    rng, clock = random.Random(burst), Clock()
    ledger, meter = InProcessLedger(clock), rate("t.r", per_second, burst)
    taken: list[tuple[int, int]] = []
    begin = clock.now
    while clock.now < begin + 30 * S:
        result = ledger.take([meter], [1])
        if isinstance(result, Grant):
            taken.append((clock.now, 1))
        else:
            clock.now += rng.choice([1, result.wait_us // 2 or 1, result.wait_us])
    assert in_any_window(taken, S) <= per_second + burst - 1
    assert len(taken) >= 0.99 * 30 * per_second


def test_the_limit_with_the_longest_wait_is_named():
    clock = Clock()
    ledger = InProcessLedger(clock)
    meters = [rate("t.r", 1), window("t.w", 1), month("t.m", 10, clock.now + DAY, opening=9)]
    assert isinstance(ledger.take(meters, [1, 1, 1]), Grant)
    refusal = ledger.take(meters, [1, 1, 1])
    assert isinstance(refusal, Refusal)
    assert (refusal.meter.key, refusal.wait_us) == ("t.m", DAY)


def test_idle_meters_are_forgotten_and_a_flood_of_keys_is_refused_before_memory_is_full():
    clock = Clock()
    ledger = InProcessLedger(clock, most=10_000)
    for number in range(50_000):
        clock.now += S // 50  # 3,000 keys a minute
        assert isinstance(ledger.take([window(f"t.{number}", 5)], [1]), Grant)
    assert len(ledger._states) <= 10_000
    with pytest.raises(LedgerUnavailable, match="no room"):
        flood(ledger)
    assert len(ledger._states) <= 10_000
    clock.now += 2 * MINUTE
    assert isinstance(ledger.take([window("v.1", 5)], [1]), Grant)


def flood(ledger: InProcessLedger) -> None:
    for number in range(11_000):
        ledger.take([window(f"u.{number}", 5)], [1])


def test_a_changed_limit_holds_at_once_for_what_is_there():
    ledger = InProcessLedger(Clock())
    for _ in range(5):
        assert isinstance(ledger.take([window("t.w", 10)], [1]), Grant)
    assert isinstance(ledger.take([window("t.w", 5)], [1]), Refusal)
    assert isinstance(ledger.take([window("t.w", 6)], [1]), Grant)


def test_a_clock_that_jumps_back_delays_nobody_for_long():
    clock = Clock()
    ledger, meter = InProcessLedger(clock), rate("t.r", 1)
    assert isinstance(ledger.take([meter], [1]), Grant)
    clock.now -= DAY
    refusal = ledger.take([meter], [1])
    assert isinstance(refusal, Refusal)
    assert refusal.wait_us <= S
