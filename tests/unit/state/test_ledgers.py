"""All ledgers do what the reference says, and limits hold in every window."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from proxy.state.memory_meters import InProcessLedger
from proxy.state.meters import (
    BUCKETS,
    GAUGE_WAIT_US,
    NEVER_US,
    Grant,
    LedgerUnavailable,
    Meter,
    MeterKind,
    Refusal,
)
from tests.fixtures.ledgers import Clock, Make, in_process, in_redis, settled

OPERATIONS = 4_000
S = 1_000_000
MINUTE, DAY = 60 * S, 86_400 * S


@pytest.fixture(params=["in process", "in Redis"])
def make(request: pytest.FixtureRequest) -> Make:
    if request.param == "in Redis":
        return in_redis(request.getfixturevalue("redis_server").url)
    return in_process


def rate(key: str, per_second: int, burst: int = 1) -> Meter:
    return meter(key, MeterKind.RATE, burst, -(-S // per_second))


def window(key: str, limit: int, span_us: int = MINUTE) -> Meter:
    return meter(key, MeterKind.WINDOW, limit, span_us)


def gauge(key: str, limit: int) -> Meter:
    return meter(key, MeterKind.GAUGE, limit)


def month(key: str, limit: int, ends_at: int, opening: int = 0) -> Meter:
    return meter(key, MeterKind.PERIOD, limit, ends_at, opening)


def meter(key: str, kind: MeterKind, limit: int, span_us: int = 0, opening: int = 0) -> Meter:
    tenant = key.split(".")[0]
    return Meter(
        name=key, tenant=tenant, key=key, kind=kind, limit=limit, span_us=span_us, opening=opening
    )


def unique(name: str) -> str:
    """Tests share one Redis."""
    return f"{name}-{random.getrandbits(64):x}"


def sets_of_meters(rng: random.Random, now: int) -> list[list[Meter]]:
    tenants = [unique(f"t{number}") for number in range(4)]
    return [
        [
            rate(f"{tenant}.{key}.s", rng.choice([1, 3, 10]), rng.choice([1, 2, 5])),
            window(f"{tenant}.minute", rng.choice([20, 60])),
            window(f"{tenant}.{key}.tokens", 5_000),
            window(f"{tenant}.day", 2_000, DAY),
            gauge(f"{tenant}.{key}.running", rng.choice([2, 8])),
            month(f"{tenant}.month", 400_000, now + 2 * DAY, opening=77),
        ]
        for tenant in tenants
        for key in ("a", "b")
    ]


def test_random_operations_have_the_results_of_the_reference(make: Make):
    asyncio.run(compare(make, random.Random(1)))


async def compare(make: Make, rng: random.Random) -> None:
    clock = Clock()
    reference = ReferenceLedger(now=clock.now)
    sets = sets_of_meters(rng, clock.now)
    running: list[tuple[Grant, list]] = []
    outcomes = {"granted": 0, "refused": 0}
    async with make(clock) as ledger:
        for _ in range(OPERATIONS):
            what = rng.random()
            if what < 0.3:
                clock.now += rng.choice([0, 1_000, 50_000, 400_000, 3 * S, 20 * S])
                reference.now = clock.now
            elif what < 0.65 or not running:
                meters = rng.choice(sets)
                tokens = rng.choice([0, 1, 40, 700, 6_000])
                amounts = [1, 1, tokens, 1, 1, tokens]
                wait, entries = reference.reserve(meters, amounts)
                result = await ledger.reserve(meters, amounts)
                if isinstance(result, Grant):
                    assert wait == 0
                    outcomes["granted"] += 1
                    running.append((result, entries))
                else:
                    assert result.wait_us == wait
                    outcomes["refused"] += 1
            else:
                grant, entries = running.pop(rng.randrange(len(running)))
                is_end = rng.random() < 0.7
                tokens = rng.randint(0, grant.amounts[2] * 5 // 4)
                amounts = [1, 1, tokens, 1, 1, tokens]
                if is_end:
                    amounts = amounts if rng.random() < 0.8 else [0] * 6
                    ledger.settle(grant, amounts)
                    ledger.settle(grant, [0] * 6)  # once only
                else:
                    ledger.amend(grant, amounts)
                    running.append((grant, entries))
                await settled(ledger)
                reference.replace(grant.meters, entries, amounts, is_end=is_end)
    assert min(outcomes.values()) > OPERATIONS / 10, outcomes


@dataclass
class Entry:
    at: int
    amount: int
    is_running: bool = True


@dataclass
class ReferenceLedger:
    """entries: by a meter's key, in order of time. now: microseconds."""

    now: int = 0
    entries: dict[str, list[Entry]] = field(default_factory=dict)

    def wait_us(self, meter: Meter, amount: int) -> int:
        if amount == 0:
            return 0
        if amount > meter.limit:
            return NEVER_US
        entries = self.entries.get(meter.key, [])
        match meter.kind:
            case MeterKind.RATE:
                return max(
                    self._full_at(entries, meter) + amount * meter.span_us - self._most(meter), 0
                )
            case MeterKind.WINDOW:
                live = [(self._leaves_at(one, meter), one.amount) for one in entries]
                live = sorted(pair for pair in live if pair[0] > self.now)
                surplus = sum(amount for _, amount in live) + amount - meter.limit
                for leaves_at, taken in [(self.now, 0), *live]:
                    surplus -= taken
                    if surplus <= 0:
                        return leaves_at - self.now
                raise AssertionError
            case MeterKind.GAUGE:
                running = sum(one.amount for one in entries if one.is_running)
                return GAUGE_WAIT_US if running + amount > meter.limit else 0
            case MeterKind.PERIOD:
                used = meter.opening + sum(one.amount for one in entries)
                return meter.span_us - self.now if used + amount > meter.limit else 0

    def reserve(self, meters: Sequence[Meter], amounts: Sequence[int]) -> tuple[int, list[Entry]]:
        """(the longest wait, what was reserved)."""
        wait = max(map(self.wait_us, meters, amounts))
        if wait:
            return wait, []
        made = []
        for meter, amount in zip(meters, amounts, strict=True):
            made.append(Entry(self.now, amount))
            self.entries.setdefault(meter.key, []).append(made[-1])
        return 0, made

    def replace(
        self, meters: Sequence[Meter], made: list[Entry], amounts: Sequence[int], *, is_end: bool
    ) -> None:
        """Of a rate only the last request can be given back, and only once."""
        for meter, entry, amount in zip(meters, made, amounts, strict=True):
            if meter.kind is not MeterKind.RATE:
                entry.amount, entry.is_running = amount, not is_end
            elif amount < entry.amount and entry is self.entries[meter.key][-1]:
                self.entries[meter.key].pop()

    def _most(self, meter: Meter) -> int:
        return self.now + meter.limit * meter.span_us

    def _full_at(self, entries: list[Entry], meter: Meter) -> int:
        full_at = 0
        for one in entries:
            full_at = max(full_at, one.at) + one.amount * meter.span_us
        return max(full_at, self.now)

    @staticmethod
    def _leaves_at(entry: Entry, meter: Meter) -> int:
        part = meter.span_us // BUCKETS
        return (entry.at // part + 1) * part + meter.span_us


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
