"""The capacity of a model's queue, from its endpoints, their rows and loads."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from proxy.domain.endpoints import EngineLoad
from proxy.domain.errors import ModelUnavailable
from proxy.domain.model import USUAL_ROWS, LoadedModel
from proxy.pools.queue_capacity import (
    EVERY_S,
    GROWS_LESS_AFTER,
    LOOKS,
    EngineRoom,
    QueueCapacities,
    usual_spare,
)
from tests.doubles import clock
from tests.doubles.engine import FACTS, ScriptedEngine
from tests.doubles.queues import CapacityRecorder
from tests.doubles.scripted_pools import DEMO, PoolStand, ScriptedTriton, checked

QUEUE = "default/demo"
LOST = ModelUnavailable("away", detail="UNAVAILABLE: the connection was lost")


def with_rows(rows: int = 8, name: str = "demo", **fields: object) -> LoadedModel:
    return replace(DEMO, name=name, facts=replace(FACTS, rows=rows, says_rows=True, **fields))


def tritons(*rows: int) -> dict[str, ScriptedTriton]:
    return {f"{chr(97 + at)}:1": ScriptedTriton(with_rows(each)) for at, each in enumerate(rows)}


@asynccontextmanager
async def stand_of(tritons: dict[str, ScriptedTriton], **options: object):
    recorder = CapacityRecorder()
    async with PoolStand(tritons) as stand:
        now = asyncio.get_running_loop().time
        capacities = QueueCapacities(stand.pools, recorder, clock=now, **options)
        async with capacities:
            yield stand, recorder


def report(stand: PoolStand, address: str, **load: object) -> None:
    served = stand.endpoint(address).served["demo"]
    served.load = EngineLoad(**{"is_stale": False, **load})


async def looked(times: int = LOOKS) -> None:
    await asyncio.sleep(times * EVERY_S + 0.5)


@clock.jumps
async def test_it_is_the_rows_of_all_endpoints_and_a_spare_stream_for_each_eight():
    async with stand_of(tritons(8, 16)) as (_, recorder):
        assert recorder.capacities == {QUEUE: 9 + 18}


@clock.jumps
async def test_a_model_that_does_not_say_its_rows_has_no_bound():
    async with stand_of({"a:1": ScriptedTriton(DEMO)}) as (_, recorder):
        assert recorder.capacities == {QUEUE: None}
    mixed = {**tritons(8), "z:1": ScriptedTriton(DEMO)}
    async with stand_of(mixed) as (_, recorder):
        assert recorder.capacities == {QUEUE: 9 + usual_spare(USUAL_ROWS)[0] + USUAL_ROWS}


@clock.jumps
async def test_endpoints_that_come_and_go_change_it_before_the_next_look():
    both = tritons(8, 8)
    async with stand_of(both) as (stand, recorder):
        await stand.decisions.drain("b:1", actor="me")
        await asyncio.sleep(0.4)
        assert recorder.capacities == {QUEUE: 9}
        await stand.decisions.undrain("b:1", actor="me")
        await asyncio.sleep(0.4)
        assert recorder.capacities == {QUEUE: 18}


@clock.jumps
async def test_without_a_ready_endpoint_it_stays_as_it_was():
    async with stand_of(only := tritons(8)) as (_, recorder):
        only["a:1"].reason = "it restarts"
        await checked(5)
        assert recorder.capacities == {QUEUE: 9}
        assert recorder.changes == 1


@clock.jumps
async def test_an_ejected_endpoint_counts_nothing_unless_all_are():
    both = tritons(8, 8)
    async with stand_of(both) as (stand, recorder):
        both["b:1"].engine = ScriptedEngine(error=LOST)
        for _ in range(5):
            await stand.lose(1, avoids=frozenset({"a:1"}))
            await checked()
        assert stand.pool.ejected == {"b:1"}
        assert recorder.capacities == {QUEUE: 9}


@clock.jumps
async def test_a_stale_load_is_no_room_unless_no_load_is_known():
    async with stand_of(tritons(8, 8)) as (stand, recorder):
        report(stand, "b:1", is_stale=True)
        await looked(1)
        assert recorder.capacities == {QUEUE: 9}
        report(stand, "a:1", is_stale=True)
        await looked(1)
        assert recorder.capacities == {QUEUE: 18}


@clock.jumps
async def test_streams_of_others_lower_it_once_every_look_finds_them():
    async with stand_of(tritons(8)) as (stand, recorder):
        recorder.running = {QUEUE: 3}
        report(stand, "a:1", waiting=1, running=7)
        await looked(LOOKS - 2)
        assert recorder.capacities == {QUEUE: 9}
        await looked()
        assert recorder.capacities == {QUEUE: 4}
        report(stand, "a:1", waiting=500, running=8)
        await looked()
        assert recorder.capacities == {QUEUE: 1}
        report(stand, "a:1", waiting=1, running=7)
        await looked()
        recorder.running = {QUEUE: 8}
        await looked(1)
        assert recorder.capacities == {QUEUE: 9}


@pytest.mark.parametrize(
    ("proxies", "in_engine", "streams"),
    [
        (3, 0, 6),  # of 18
        (3, 12, 6),  # the others use their shares
        (3, 15, 3),  # and three more
        (100, 0, 1),
    ],
)
@clock.jumps
async def test_several_hosts_share_it(proxies, in_engine, streams):
    async with stand_of(tritons(16), share=lambda all_of_it: -(-all_of_it // proxies)) as (
        stand,
        recorder,
    ):
        report(stand, "a:1", waiting=0, running=in_engine)
        await looked()
        assert recorder.capacities == {QUEUE: streams}


ROWS, SPARE = 16, 2


def load(waiting: int, running: int, kv: float = 0.3, *, is_stale: bool = False) -> EngineLoad:
    return EngineLoad(waiting=waiting, running=running, kv_in_use=kv, is_stale=is_stale)


def test_an_eighth_of_the_rows_is_spare_at_least_and_a_quarter_at_most():
    assert [usual_spare(rows) for rows in (1, 8, 9, 64)] == [(1, 2), (1, 2), (2, 3), (8, 16)]


SHORT = [load(11, 7, kv=0.97)]


@pytest.mark.parametrize(
    ("reports", "has_backlog", "streams"),
    [
        ([EngineLoad(is_stale=False)], False, [18]),  # it reports nothing: its rows and the spare
        ([load(9, 3)], False, [18]),  # all of them are new, and the engine is in a long step
        (SHORT, False, [9]),  # no memory for its rows: what it runs, and the spare
        # one more with each report that finds its own queue short
        (SHORT + [load(2, 7, kv=0.95)] * 10, False, [9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 18]),
        ([load(0, 16, kv=1.0)], False, [18]),  # full memory without a queue: a full engine
        ([load(0, 12)] * 5, True, [19, 20, 21, 21, 21]),  # idle rows add spare streams, to a bound
        ([load(0, 3)], False, [18]),  # without a backlog they are only a lack of requests
    ],
)
def test_how_many_streams_an_engine_gets_after_its_reports(reports, has_backlog, streams):
    one, seen = EngineRoom(ROWS, (SPARE, 5)), []
    for report in reports:
        one.see(report, has_backlog=has_backlog)
        seen.append(one.streams)
    assert seen == streams


def test_an_engine_that_runs_nothing_for_lack_of_memory_gets_a_stream():
    one = EngineRoom(1, (0, 0))
    one.see(load(4, 0, kv=1.0))
    assert one.streams == 1


def test_spare_streams_go_again_when_no_row_was_idle_for_long():
    one = EngineRoom(ROWS, (SPARE, 5))
    one.see(load(0, 12), has_backlog=True)
    for _ in range(GROWS_LESS_AFTER - 1):
        one.see(load(1, 16), has_backlog=True)
    assert one.streams == 19
    one.see(load(1, 16), has_backlog=True)
    assert one.streams == 18
    for _ in range(5 * GROWS_LESS_AFTER):
        one.see(load(1, 16), has_backlog=True)
    assert one.streams == 18


@clock.jumps
@pytest.mark.parametrize(("held", "expected"), [({QUEUE}, 0), (set(), None)])
async def test_a_queue_whose_requests_are_held_has_none_while_no_endpoint_serves_it(held, expected):
    async with stand_of(tritons(8), holds=held.__contains__) as (stand, recorder):
        await stand.decisions.drain("a:1", actor="me")
        await asyncio.sleep(0.4)
        assert recorder.capacities == {QUEUE: 0 if held else 9}
        stand.source.name()
        await asyncio.sleep(2.5)
        assert recorder.capacities == {QUEUE: expected}
        await stand.decisions.undrain("a:1", actor="me")
        stand.source.name("a:1")
        await asyncio.sleep(2.5)
        assert recorder.capacities == {QUEUE: 9}
