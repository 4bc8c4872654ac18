"""A caller's limits become meters: names, units, months, and what was spent before."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import datetime, timezone

import pytest

from proxy.access.limits.caller_meters import NOTHING, CallerMeters, MeteredCallers, Unit
from proxy.domain.identity import Caller, Limits
from proxy.domain.usage import Spent
from proxy.state.meters import MeterKind
from tests.doubles.usage import KeptUsage
from tests.fixtures.limits import caller

pytestmark = pytest.mark.anyio

ALL = Limits(
    requests_per_second=3,
    burst=7,
    requests_per_minute=10,
    requests_per_day=20,
    input_tokens_per_minute=30,
    output_tokens_per_minute=40,
    tokens_per_minute=50,
    input_tokens_per_day=60,
    output_tokens_per_day=70,
    tokens_per_day=80,
    concurrent_requests=2,
    concurrent_streams=1,
    monthly_tokens=90,
    monthly_budget=0.5,
)
NOVEMBER = datetime(2026, 11, 22, 17, tzinfo=timezone.utc).timestamp()
DECEMBER = datetime(2026, 12, 31, 23, 59, 59, tzinfo=timezone.utc).timestamp()


def meters(who: Caller, model: str = "demo", now_s: float = NOVEMBER, **spent) -> CallerMeters:
    known = MeteredCallers(KeptUsage(Spent(**spent)), clock=lambda: now_s)
    return asyncio.run(known.meters(who, model))


def test_every_limit_of_each_of_the_three_becomes_a_meter_of_its_own():
    found = meters(caller(key=ALL, of_tenant=ALL, of_models={"demo": ALL, "other": ALL}))
    names = [meter.name for meter in found.meters]
    fields = {name for name in Limits.__dataclass_fields__ if name != "burst"}
    assert {name.partition(".")[2] for name in names} == fields
    assert {name.partition(".")[0] for name in names} == {"tenant", "key", "model"}
    assert len(names) == len(set(names)) == 3 * len(fields)
    assert len({meter.key for meter in found.meters}) == len(names)


def test_amounts_come_in_the_unit_of_their_meter():
    found = meters(caller(key=ALL))
    amounts = found.amounts((1, 2, 3, 4, 5, 6, 7))
    by_name = dict(zip((m.name.partition(".")[2] for m in found.meters), amounts, strict=True))
    assert by_name["requests_per_second"] == by_name["requests_per_day"] == 1
    assert (by_name["concurrent_requests"], by_name["concurrent_streams"]) == (2, 3)
    assert by_name["input_tokens_per_minute"] == by_name["input_tokens_per_day"] == 4
    assert by_name["output_tokens_per_minute"] == by_name["output_tokens_per_day"] == 5
    assert by_name["tokens_per_minute"] == by_name["monthly_tokens"] == 6
    assert by_name["monthly_budget"] == 7
    assert len(NOTHING) == len(Unit)


def test_a_rate_is_never_faster_than_given_and_money_is_counted_in_billionths():
    (meter,) = meters(caller(key=Limits(requests_per_second=3, burst=7))).meters
    assert (meter.kind, meter.limit, meter.span_us) == (MeterKind.RATE, 7, 333_334)
    (meter,) = meters(caller(key=Limits(monthly_budget=0.5)), cost=0.1).meters
    assert (meter.limit, meter.opening) == (500_000_000, 100_000_000)


@pytest.mark.parametrize(
    ("now_s", "name", "until"),
    [(NOVEMBER, "2026-11", (2026, 12)), (DECEMBER, "2026-12", (2027, 1))],
)
def test_a_month_is_a_calendar_month_in_utc(now_s: float, name: str, until: tuple[int, int]):
    meter = meters(caller(key=Limits(monthly_tokens=9)), now_s=now_s, tokens=4).meters[0]
    assert meter.key.endswith(f"/monthly_tokens:{name}")
    assert meter.span_us == datetime(*until, 1, tzinfo=timezone.utc).timestamp() * 1_000_000
    assert meter.opening == 4


@pytest.mark.parametrize("name", ["a}b", "a{b}", "a/key:k", "ä", ""])
def test_no_tenant_can_be_taken_for_another(name: str):
    limits = Limits(requests_per_minute=1)
    hostile, plain = meters(caller(name, key=limits)), meters(caller("a", key=limits))
    assert hostile.meters[0].key != plain.meters[0].key
    assert not set("{}") & set(hostile.meters[0].tenant)
    assert hostile.meters[0].key.count("/") == 2


async def test_meters_are_kept_until_limits_change_or_the_month_ends():
    now_s = [NOVEMBER]
    source = KeptUsage()
    known = MeteredCallers(source, clock=lambda: now_s[0])
    who = caller(key=Limits(monthly_tokens=9))

    first = await known.meters(who, "demo")
    assert await known.meters(replace(who), "demo") is first  # the same in a new object
    changed = caller(key=Limits(monthly_tokens=8))
    assert (await known.meters(changed, "demo")).meters[0].limit == 8
    now_s[0] += 10 * 86_400
    assert (await known.meters(changed, "demo")).meters[0].key.endswith("2026-12")
    assert len(source.asked) == 3
