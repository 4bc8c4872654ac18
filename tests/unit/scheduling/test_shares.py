"""Who gets how much, how soon, on a simulated engine."""

from __future__ import annotations

import statistics
from dataclasses import replace

import pytest

from proxy.settings.streams import Scheduling
from tests.unit.scheduling.simulated_rows import STEP_S, Callers, Seen, SimulatedRows

HOUR_S = 3_600.0
MANY = Scheduling(queue_length=5_000, queue_timeout_s=HOUR_S, fair_preemption=False)
PREEMPTING = Scheduling(queue_length=5_000, queue_timeout_s=HOUR_S)


def simulated(
    rows: int, *callers: Callers, settings: Scheduling = MANY, until_s: float = HOUR_S
) -> dict[str, Seen]:
    simulation = SimulatedRows(rows, settings)
    for each in callers:
        simulation.add(each)
    simulation.run(until_s)
    return simulation.seen


def p99(values: list[float]) -> float:
    return sorted(values)[int(len(values) * 0.99)]


SMALL, BIG = Callers("small", streams=2), Callers("big", streams=200)


def test_two_streams_get_half_of_two_rows_from_two_hundred():
    seen = simulated(2, SMALL, BIG)
    whole = seen["small"].service + seen["big"].service
    assert seen["small"].service / whole == pytest.approx(0.5, abs=0.025)


def test_the_ttft_of_two_streams_among_two_hundred_is_within_twice_its_value_alone():
    """64 rows that become free every 80 ms; prompts of 50 to 4,000 tokens."""
    alone, among = (simulated(64, *each, until_s=900) for each in ((SMALL,), (SMALL, BIG)))
    assert p99(among["small"].ttfts_s) <= 2 * p99(alone["small"].ttfts_s)
    assert p99(among["big"].ttfts_s) > 10


@pytest.mark.parametrize("rows", [4, 16, 64])
def test_weights_of_one_to_three_give_one_to_three(rows: int):
    tenants = Callers("one", streams=100), Callers("three", streams=100, weight=3)
    seen = simulated(rows, *tenants, until_s=HOUR_S * 4 / rows)
    assert seen["three"].service / seen["one"].service == pytest.approx(3, rel=0.05)


def test_tenants_that_always_wait_differ_by_what_the_rows_can_hold():
    """The bound of VTC: twice the service that runs at once, however long."""
    most = 16 * (4_000 + 2 * 350)
    simulation = SimulatedRows(16, MANY)
    for number in range(10):
        lengths = {"prompt": (1, 100), "output": (300, 350)} if number % 2 else {}
        simulation.add(Callers(f"t{number}", streams=30, **lengths))
    for minute in range(1, 61):
        simulation.run(60.0 * minute)
        service = [seen.service for seen in simulation.seen.values()]
        assert max(service) - min(service) <= 2 * most
    assert min(service) > 10 * most


def test_a_thousand_tenants_over_three_hours():
    """Ten of them always want more, the others ask now and then: for four tenths of the rows."""
    heavy = [Callers(f"h{n}", streams=20, weight=1 + n % 3, output=(800, 1_600)) for n in range(10)]
    light = [Callers(f"l{n}", every_s=1_000, output=(500, 1_500)) for n in range(990)]
    simulation = SimulatedRows(64, MANY, charge_s=5.0)
    for each in (*heavy, *light):
        simulation.add(each)
    simulation.run(3 * HOUR_S)
    seen = simulation.seen
    assert sum(each.refused for each in seen.values()) == 0
    by_weight = [seen[each.tenant].service / each.weight for each in heavy]
    assert max(by_weight) / min(by_weight) < 1.05
    waits = [wait for each in light for wait in seen[each.tenant].waits_s]
    assert len(waits) > 10_000
    assert p99(waits) < 5  # of streams that take half a minute
    assert p99([wait for each in heavy for wait in seen[each.tenant].waits_s]) > 60
    tenants = simulation.queue._classes[0].shares
    assert len(tenants) < 200  # the others have been forgotten


def test_a_higher_class_gets_all_that_it_asks_for():
    seen = simulated(8, Callers("low", streams=50), Callers("high", streams=2, priority=1))
    alone = simulated(8, Callers("high", streams=2, priority=1))
    assert seen["high"].service > 0.8 * alone["high"].service
    assert max(seen["high"].passed) <= 1  # its own other one


def test_service_that_nobody_else_wanted_is_not_held_against_a_tenant():
    simulation = SimulatedRows(8, MANY)
    simulation.add(Callers("early", streams=8))
    simulation.run(HOUR_S)
    before = simulation.seen["early"].service
    simulation.add(Callers("early", streams=30))
    simulation.add(Callers("late", streams=30))
    simulation.run(1.5 * HOUR_S)
    early = simulation.seen["early"].service - before
    assert early / simulation.seen["late"].service == pytest.approx(1, rel=0.05)


@pytest.mark.parametrize(
    ("others", "admitted"),
    [
        ([], 0.9),
        ([Callers("b", streams=15), Callers("c", every_s=5.0)], 0.55),
        ([Callers("b", streams=10, weight=2), Callers("high", every_s=30.0, priority=1)], 0.85),
    ],
)
def test_callers_that_return_when_they_are_told_are_admitted(
    others: list[Callers], admitted: float
):
    """Twice as many callers as places, of which none gives up, and none comes early."""
    settings = Scheduling(queue_length=30, queue_timeout_s=60, fair_preemption=False)
    callers = Callers("a", streams=50, pause_s=1, returns=True)
    seen = simulated(8, callers, *others, settings=settings)["a"]
    assert seen.returned > 500
    assert 1 - seen.refused_again / seen.returned >= admitted


SPARE = [
    pytest.param({"spare": 0}, id="no spare streams"),
    pytest.param({"spare": 2}, id="two spare streams"),
    pytest.param({"spare": 2, "takes_priority": False}, id="an engine without priorities"),
]
LONG = Callers("large", streams=20, output=(3_500, 3_500), prompt=(10, 20), may_yield=True)
SHORT = Callers("large", streams=90, output=(64, 64), prompt=(10, 20), may_yield=True)


def closed(streams: int, tokens: int) -> Callers:
    """The small tenant: each caller sends its next request as soon as it has its answer."""
    return replace(SHORT, tenant="small", streams=streams, pause_s=0.005, output=(tokens, tokens))


def two_minutes(*callers: Callers, **engine: object) -> dict[str, Seen]:
    """After ten seconds, so that the large tenant has all rows and long answers."""
    simulation = SimulatedRows(4, PREEMPTING, **engine)
    for each in callers:
        simulation.add(each)
    simulation.run(10)
    simulation.seen.clear()
    simulation.run(130)
    return simulation.seen


@pytest.mark.parametrize("engine", SPARE)
@pytest.mark.parametrize(
    ("small", "large"),
    [(closed(1, 16), LONG), (closed(2, 64), SHORT)],
    ids=["one short after another, long answers", "two and ninety"],
)
def test_a_small_tenant_gets_a_row_at_once_however_long_the_others_answers_are(
    small: Callers, large: Callers, engine: dict[str, object]
):
    alone, among = two_minutes(small), two_minutes(small, large, **engine)
    assert p99(among["small"].ttfts_s) < 2 * p99(alone["small"].ttfts_s)
    assert among["small"].tokens > 0.9 * alone["small"].tokens
    tokens = sum(each.tokens for each in among.values())
    assert tokens > 0.95 * 120 * 4 / STEP_S
    assert among["large"].tokens > 0.95 * (tokens - alone["small"].tokens)


@pytest.mark.parametrize("engine", SPARE)
def test_more_tenants_than_rows_share_them_while_their_answers_are_long(engine):
    tenants = [replace(LONG, tenant=f"t{number}", streams=2) for number in range(5)]
    tokens = [seen.tokens for seen in two_minutes(*tenants, **engine).values()]
    assert min(tokens) > 0.9 * sum(tokens) / len(tokens)
    assert sum(tokens) > 0.95 * 120 * 4 / STEP_S


def test_a_stream_that_yields_again_and_again_comes_to_its_end():
    large = replace(LONG, streams=5, output=(400, 400))
    seen = two_minutes(closed(4, 8), large)
    assert seen["large"].ended > 0.45 * 120 * 4 / STEP_S / 400


def test_what_is_not_cached_must_pay_off_before_a_stream_yields_again():
    """Prompts of 1,000 tokens, of which the engine finds nothing again."""
    large = replace(LONG, prompt=(1_000, 1_000))
    seen = two_minutes(closed(4, 8), large, has_prefix_cache=False)
    assert sum(each.tokens for each in seen.values()) > 0.95 * 120 * 4 / STEP_S


@pytest.mark.parametrize(
    "callers",
    [
        [SHORT],
        [closed(2, 64), SHORT],
        [closed(12, 64), SHORT],
        [SHORT, replace(SHORT, tenant="heavy", weight=3)],
    ],
    ids=["one", "two and ninety", "twelve and ninety", "by weight"],
)
@pytest.mark.parametrize("spare", [0, 2])
def test_positions_and_waits_are_told_as_they_will_be(callers: list[Callers], spare: int):
    simulation = SimulatedRows(4, PREEMPTING, spare=spare)
    for each in callers:
        simulation.add(each)
    simulation.run(300)  # what streams cost is known
    simulation.foretold.clear()
    simulation.run(900)
    positions, waits = zip(*simulation.foretold, strict=True)
    assert len(waits) > 100
    assert 0.75 < statistics.median(positions) < 1.25
    assert 0.75 < statistics.median(waits) < 1.25
    assert statistics.median(abs(each - 1) for each in waits) < 0.25
