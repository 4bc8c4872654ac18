"""Streams that are cut in the middle over a pool: where and when they are continued."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import replace

import pytest

from proxy.domain.completion import fold
from proxy.domain.delta_log import DeltaLog, NumberedDelta
from proxy.domain.endpoints import EndpointState
from proxy.domain.errors import (
    EngineFailed,
    EngineStalled,
    ErrorCode,
    ModelUnavailable,
    RateLimited,
)
from proxy.domain.interrupt import Cause
from proxy.domain.request import Sampling
from tests.doubles import clock
from tests.doubles.dying_engine import DyingEngine
from tests.doubles.engine import CAPABILITIES
from tests.doubles.scripted_pools import DEMO, PoolStand, ScriptedTriton, checked
from tests.unit.generation.test_other_endpoints import PooledStand, pooled

SEEDED = Sampling(seed=5)
TEXT = "It goes on and on."


class Held(DyingEngine):
    """Stops after so many deltas until it is let go on."""

    def __init__(self, after: int, **fields: object) -> None:
        super().__init__(TEXT, **fields)
        self.after = after
        self.may_go_on = asyncio.Event()
        self.is_held = asyncio.Event()

    async def generate(self, request):
        async with aclosing(super().generate(request)) as deltas:
            number = 0
            async for delta in deltas:
                if number == self.after:
                    self.is_held.set()
                    await self.may_go_on.wait()
                number += 1
                yield delta


def triton(engine: DyingEngine, **fields: object) -> ScriptedTriton:
    found = ScriptedTriton(replace(DEMO, **fields))
    found.engine = engine
    return found


def pool(*engines: DyingEngine, **fields: object) -> dict[str, ScriptedTriton]:
    return {f"{name}:1": triton(one, **fields) for name, one in zip("abc", engines, strict=False)}


async def begun_at(engines: list[Held], stand: PooledStand, **fields: object):
    """A task that waits in the middle of its answer, the engine it waits at, and the others."""
    task = stand.begin(**fields)
    waiting = {asyncio.create_task(one.is_held.wait()): one for one in engines}
    done, rest = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    for one in rest:
        one.cancel()
    first = waiting[done.pop()]
    others = [one for one in engines if one is not first]
    for one in others:
        one.may_go_on.set()
    return task, first, others


def name_of(stand: PoolStand, engine: DyingEngine) -> str:
    return next(name for name, one in stand.tritons.items() if one.engine is engine)


@clock.jumps
async def test_another_endpoint_continues_at_once_and_the_lost_one_is_avoided():
    engines = DyingEngine(TEXT, cut=3), DyingEngine(TEXT, cut=3)

    async with pooled(pool(*engines)) as (_, stand):
        began = asyncio.get_running_loop().time()
        assert fold(await stand.begin()).text == TEXT
        assert asyncio.get_running_loop().time() == began
        (first,), (second,) = (one.requests for one in engines)
        if first.generated:
            first, second = second, first
        assert (first.id, second.id) == ("r1", "r1-continued1")
        assert second.generated == (1000, 1001, 1002)
        assert len(second.avoids) == 1
        assert second.timeout_s <= first.timeout_s
        assert stand.causes == [Cause.LOST]


@clock.jumps
@pytest.mark.parametrize("cuts_all", [False, True])
async def test_a_stream_that_just_ends_in_the_middle_is_continued_as_a_lost_one(cuts_all):
    """Bounded: where no part gets further, it fails after the losses in a row that any has."""
    engines = [DyingEngine(TEXT, cut=3, cuts_all=cuts_all, death=lambda: None) for _ in range(2)]

    async with pooled(pool(*engines)) as (_, stand):
        if not cuts_all:
            assert fold(await stand.answer()).text == TEXT
            assert stand.causes == [Cause.LOST]
        else:
            with pytest.raises(ModelUnavailable, match="continued 2 times already"):
                await stand.answer()
        assert sum(len(one.requests) for one in engines) == (3 if cuts_all else 2)


@clock.jumps
async def test_no_engine_request_of_an_answer_has_a_name_that_another_one_had():
    """Engines remember stops by them: over processes that take the answer from one another, in
    whatever state it is, and over the losses in each.
    """
    names: list[str] = []
    logged: list[NumberedDelta] = []
    for cut in (0, 0, 1, 0, 1, 1):  # deltas of each part
        engine, log = DyingEngine(TEXT, cut=cut, cuts_all=True), DeltaLog(logged=tuple(logged))
        async with pooled(pool(engine)) as (_, stand):
            with pytest.raises(ModelUnavailable):
                await stand.answer(delta_log=log)
        names += [one.id for one in engine.requests]
        logged += log.take()
    assert len(names) == len(set(names)) == 6 * 3
    assert b"".join(one.token_bytes[0] for _, one in logged).decode() == TEXT[:9]


@clock.jumps
async def test_where_there_is_no_other_it_waits_until_the_endpoint_is_back():
    engine = DyingEngine(TEXT, cut=3)
    tritons = pool(engine)

    async with pooled(tritons) as (_, stand):
        tritons["a:1"].reason = "it died"
        answer = asyncio.create_task(stand.answer())
        await asyncio.sleep(5)
        assert len(engine.requests) == 1
        tritons["a:1"].reason = None
        assert fold(await answer).text == TEXT
        assert len(engine.requests) == 2


@clock.jumps
@pytest.mark.parametrize(
    ("whole_s", "within"), [(600, "not ready again within 60 s"), (20, "within the request's 20 s")]
)
async def test_a_stream_waits_no_longer_than_it_may_and_its_error_says_how_long(whole_s, within):
    """The setting is 60 seconds, and the time limit of the request counts too."""
    engine = DyingEngine(TEXT, cut=3)
    tritons = pool(engine)

    async with pooled(tritons, whole_s=whole_s) as (_, stand):
        tritons["a:1"].reason = "it died"
        with pytest.raises(ModelUnavailable, match=within):
            await stand.answer()
        assert [one.uncontinued for one in stand.records] == [[Cause.LOST]]


@clock.jumps
async def test_a_silent_stream_moves_after_the_short_time_and_only_where_it_can():
    async with pooled(pool(Held(3)), short_silence_s=4, whole_s=600) as (_, stand):
        with pytest.raises(EngineStalled, match="for 60 seconds"):
            await stand.begin()

    engines = [Held(3), Held(3)]
    async with pooled(pool(*engines), short_silence_s=4, whole_s=600) as (pools, stand):
        began = asyncio.get_running_loop().time()
        task, first, (other,) = await begun_at(engines, stand)
        assert fold(await task).text == TEXT
        assert 4 <= asyncio.get_running_loop().time() - began < 5
        assert other.requests[0].avoids == {name_of(pools, first)}
        assert stand.causes == [Cause.STALLED]
        assert first.running == 0


@clock.jumps
async def test_a_stream_without_a_first_token_is_not_silent_so_soon():
    engines = [Held(0), Held(0)]

    async with pooled(pool(*engines), short_silence_s=4, whole_s=600) as (_, stand):
        task, first, _ = await begun_at(engines, stand)
        await asyncio.sleep(30)
        first.may_go_on.set()
        assert fold(await task).text == TEXT
        assert not stand.causes


@clock.jumps
@pytest.mark.parametrize("leaves", [False, True])
async def test_a_drain_moves_the_streams_that_can_be_continued(leaves):
    engines = [Held(3), Held(3)]

    async with pooled(pool(*engines)) as (pools, stand):
        task, first, (other,) = await begun_at(engines, stand)
        name = name_of(pools, first)
        if leaves:
            pools.source.name(name_of(pools, other))
        else:
            await pools.decisions.drain(name, actor="test")
        await checked()
        assert fold(await task).text == TEXT
        assert first.running == 0
        assert other.requests[0].id == "r1-continued1"
        assert stand.causes == [Cause.DRAINED]


@clock.jumps
async def test_a_drain_lets_other_streams_end():
    engines = [Held(3), Held(3)]

    async with pooled(pool(*engines, capabilities=CAPABILITIES - {"resume"})) as (pools, stand):
        task, first, _ = await begun_at(engines, stand, sampling=SEEDED)
        await pools.decisions.drain(name_of(pools, first), actor="test")
        await checked(3)
        assert first.running == 1
        first.may_go_on.set()
        assert fold(await task).text == TEXT
        assert not stand.causes


@clock.jumps
async def test_an_interrupt_and_a_disconnect_at_once_are_a_disconnect():
    engines = [Held(3), Held(3)]

    async with pooled(pool(*engines)) as (pools, stand):
        for is_first in (True, False):
            for one in engines:
                one.is_held.clear()
                one.may_go_on.clear()
            task, first, others = await begun_at(engines, stand)
            sent = len(others[0].requests)
            (interrupt,) = pools.endpoint(name_of(pools, first)).interrupts
            if is_first:
                task.cancel()
            interrupt.fire(ModelUnavailable("away"))
            if not is_first:
                task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert len(others[0].requests) == sent


@clock.jumps
async def test_an_engine_whose_queue_is_full_is_asked_again():
    full = [RateLimited("full", code=ErrorCode.QUEUE_FULL, retry_after_s=2)] * 3

    class Full(DyingEngine):
        async def generate(self, request):
            if self.requests and full:
                raise full.pop()
            async for delta in super().generate(request):
                yield delta

    engine = Full(TEXT, cut=3)
    engine_of_both = pool(engine, engine)

    async with pooled(engine_of_both) as (_, stand):
        began = asyncio.get_running_loop().time()
        assert fold(await stand.begin()).text == TEXT
        assert asyncio.get_running_loop().time() - began == 6


PROBED = {"probe_every_s": 5.0, "probe_timeout_s": 2.0}


@clock.jumps
@pytest.mark.parametrize("after", [0, 5])
@pytest.mark.parametrize("fault", [asyncio.Event, lambda: EngineFailed("it is dead")])
async def test_streams_of_an_engine_that_is_dead_while_triton_is_ready_move_in_time(after, fault):
    engines = Held(after), Held(after)
    async with pooled(pool(*engines), probes=PROBED, silence_s=3600) as (pools, stand):
        began = asyncio.get_running_loop().time()
        task, first, _ = await begun_at([*engines], stand)
        dead = name_of(pools, first)
        pools.tritons[dead].trial_faults["demo"] = fault()
        assert fold(await task).text == TEXT
        assert asyncio.get_running_loop().time() - began < 5 + 2 + 1
        assert pools.states()[dead] is EndpointState.NOT_READY
        if after:
            assert stand.causes == [Cause.LOST]
        for one in pools.tritons.values():
            if isinstance(hangs := one.trial_faults.pop("demo", None), asyncio.Event):
                hangs.set()
        await checked(40)
        assert pools.states()[dead] is EndpointState.READY


@clock.jumps
async def test_an_engine_that_answers_its_streams_is_not_probed_and_an_idle_one_once_a_time():
    (engine,) = engines = (Held(10_000),)
    async with pooled(pool(*engines), probes=PROBED) as (pools, stand):
        (triton,) = pools.tritons.values()
        before = len(triton.trials)
        for _ in range(10):
            assert fold(await stand.begin()).text == TEXT
            await asyncio.sleep(4)
        assert len(triton.trials) == before
        await asyncio.sleep(30)
        assert 4 <= len(triton.trials) - before <= 6
        assert len(engine.requests) == 10


@clock.jumps
async def test_a_probe_that_waits_behind_streams_that_get_tokens_is_no_fault():
    engines = (Held(3),)
    async with pooled(pool(*engines), probes=PROBED) as (pools, stand):
        (triton,) = pools.tritons.values()
        task, first, _ = await begun_at([*engines], stand)
        triton.trial_faults["demo"] = asyncio.Event()
        await asyncio.sleep(6)  # the probe runs
        first.may_go_on.set()
        assert fold(await task).text == TEXT
        await asyncio.sleep(2)
        assert pools.states() == {"a:1": EndpointState.READY}


@clock.jumps
async def test_without_the_setting_nothing_is_probed():
    triton = ScriptedTriton()
    async with pooled({"a:1": triton}):
        await asyncio.sleep(600)
        assert len(triton.trials) == 1
