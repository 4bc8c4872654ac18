"""All ledgers do the same, and what the reference says."""

from __future__ import annotations

import asyncio
import random

import pytest

from proxy.state.meters import (
    Grant,
    Meter,
    MeterKind,
)
from tests.fixtures.ledgers import Clock, Make, in_process, in_redis, settled
from tests.unit.state.reference_ledger import ReferenceLedger

OPERATIONS = 10_000
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


@pytest.mark.parametrize("seed", [1])
def test_10_000_random_operations_have_the_results_of_the_reference(make: Make, seed: int):
    asyncio.run(compare(make, random.Random(seed)))


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
    assert min(outcomes.values()) > 1_000, outcomes
