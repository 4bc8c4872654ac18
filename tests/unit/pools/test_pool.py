"""A pool: endpoints that come, leave and come back, its breakers, and why nothing is ready."""

from __future__ import annotations

import asyncio
from collections import Counter
from itertools import count
from random import Random

import pytest
from structlog.testing import capture_logs

from proxy.domain.endpoints import EndpointState
from proxy.domain.engine import NotReady
from proxy.domain.errors import ModelUnavailable
from proxy.pools import pool
from proxy.pools.pool import may_eject
from tests.doubles import clock
from tests.doubles.engine import ScriptedEngine, deltas
from tests.doubles.scripted_pools import PoolStand, ScriptedTriton, checked

EJECTED, READY = EndpointState.EJECTED, EndpointState.READY
LOST = ModelUnavailable("away", detail="UNAVAILABLE: the connection was lost")
FAULTS = 5  # in a row eject


def lossy() -> ScriptedTriton:
    """It loses every stream before its first token, and passes its checks."""
    triton = ScriptedTriton()
    triton.engine = ScriptedEngine(error=LOST)
    return triton


def cured(triton: ScriptedTriton) -> None:
    triton.engine.error, triton.engine.scripts = None, [deltas("ab")]


async def eject(stand: PoolStand, address: str) -> None:
    others = frozenset(stand.tritons) - {address}
    for _ in range(FAULTS):
        await stand.lose(1, avoids=others)
        await checked()


@clock.jumps
async def test_a_new_endpoint_gets_its_share_slowly():
    tritons = {"a:1": ScriptedTriton()}
    for triton in tritons.values():
        triton.engine = ScriptedEngine(deltas("a", None), hangs=True)
    async with PoolStand(tritons) as stand:
        await checked(20)
        kept = [await stand.begun() for _ in range(20)]
        stand.tritons["b:1"] = ScriptedTriton()
        stand.tritons["b:1"].engine = ScriptedEngine(deltas("a", None), hangs=True)
        stand.source.name("a:1", "b:1")
        while stand.states().get("b:1") is not READY:  # noqa: ASYNC110 - the clock jumps
            await asyncio.sleep(0.01)
        kept += [await stand.begun() for _ in range(4)]
        early = stand.counter.begun["b:1"]
        await asyncio.sleep(5)
        kept += [await stand.begun() for _ in range(40)]
        begun = stand.counter.begun
        assert early <= 3
        assert abs(begun["a:1"] - begun["b:1"]) <= 0.1 * begun["a:1"]
        for stream in kept:
            await stream.aclose()
        assert stand.outstanding == (0, 0)


@clock.jumps
async def test_what_leaves_is_closed_when_its_streams_have_ended_and_may_come_back_before():
    tritons = {"a:1": ScriptedTriton(), "b:1": ScriptedTriton()}
    async with PoolStand(tritons) as stand:
        stream = await stand.begun(avoids=frozenset({"b:1"}))
        stand.source.name("b:1")
        await checked(2)
        assert stand.states() == {"a:1": EndpointState.DRAINING, "b:1": READY}
        stand.source.name("a:1", "b:1")
        await checked()
        assert stand.states() == {"a:1": READY, "b:1": READY}
        stand.source.name("b:1")
        await stream.aclose()
        await checked()
        assert (stand.states(), tritons["a:1"].open) == ({"b:1": READY}, 0)
        stand.source.name("a:1", "b:1")
        await checked()
        assert stand.states() == {"a:1": READY, "b:1": READY}


@clock.jumps
async def test_one_endpoint_of_two_is_ejected_and_tried_with_one_request_when_its_time_is_over():
    tritons = {"a:1": ScriptedTriton(), "b:1": lossy()}
    async with PoolStand(tritons) as stand:
        await eject(stand, "b:1")
        assert stand.states() == {"a:1": READY, "b:1": EJECTED}
        assert stand.counter.states == {"default": {READY: 1, EJECTED: 1}}
        before = len(tritons["b:1"].engine.requests)
        for _ in range(20):
            assert await stand.answered() == "ab"
        assert len(tritons["b:1"].engine.requests) == before
        await asyncio.sleep(30)
        tritons["b:1"].engine = probed = ScriptedEngine(deltas("ab"), pause_s=1)
        answers = [asyncio.create_task(stand.answered()) for _ in range(20)]
        await asyncio.gather(*answers)
        await checked()
        assert len(probed.requests) == 1
        assert stand.counter.states == {"default": {READY: 2}}
        assert stand.counter.ejections == {"b:1": 1}
        assert stand.endpoint("b:1").served["demo"].is_warming_up


@clock.jumps
async def test_all_that_are_left_get_streams_when_only_ejected_ones_are():
    tritons = {"a:1": ScriptedTriton(), "b:1": lossy()}
    async with PoolStand(tritons) as stand:
        await eject(stand, "b:1")
        cured(tritons["b:1"])
        tritons["a:1"].reason = "it died"
        await checked()
        tritons["b:1"].engine.pause_s = 1
        answers = await asyncio.gather(*(stand.answered() for _ in range(5)))
        assert answers == ["ab"] * 5
        assert stand.states()["b:1"] is READY


@clock.jumps
async def test_a_start_waits_for_no_endpoint_for_ever():
    hanging = ScriptedTriton()
    hanging.may_answer.clear()
    loop = asyncio.get_running_loop()
    async with PoolStand({"a:1": ScriptedTriton(), "b:1": hanging}) as stand:
        assert loop.time() <= pool.FIRST_CHECKS_S + 1
        assert stand.states() == {"a:1": READY, "b:1": EndpointState.CONNECTING}


@clock.jumps
async def test_nothing_is_left_of_endpoints_that_come_and_go():
    rounds = count(1)
    async with PoolStand({"a:1": ScriptedTriton()}, policy="prefix") as stand:
        for _ in range(10):
            named = {f"e{next(rounds)}:1": ScriptedTriton() for _ in range(20)}
            stand.tritons = {"a:1": stand.tritons["a:1"], **named}
            stand.source.name(*stand.tritons)
            await checked(0.1)
            await stand.answered(text="x" * 300)
            stand.source.name("a:1")
            await checked()
        chooser, kept = stand.pool.chooser, stand.pool
        assert list(kept.endpoints) == ["a:1"]
        assert chooser.prefixes.add_endpoint() <= 2
        assert (len(chooser._warming), len(kept._running)) == (0, 1)
        assert len(kept._interned) == 1
        assert len(asyncio.all_tasks()) < 10
        assert not any(one.open for one in named.values())


USUAL_S, SLOW_S = 0.01, 0.4  # before each delta


def paced(pause_s: float = USUAL_S) -> ScriptedTriton:
    triton = ScriptedTriton()
    triton.engine = ScriptedEngine(deltas("abcdefgh"), pause_s=pause_s)
    return triton


def three() -> dict[str, ScriptedTriton]:
    return {address: paced() for address in ("a:1", "b:1", "c:1")}


async def one_after_another(stand: PoolStand, times: int) -> Counter[str]:
    """How many answers came from each endpoint."""
    before = stand.counter.begun.copy()
    for _ in range(times):
        await stand.answered()
    return stand.counter.begun - before


@pytest.mark.parametrize("policy", ["least_outstanding", "prefix"])
@clock.jumps
async def test_an_endpoint_that_has_become_slow_gets_little_until_it_recovers(policy):
    tritons = three()
    async with PoolStand(tritons, policy) as stand:
        await checked(20)
        usual = await one_after_another(stand, 60)
        tritons["c:1"].engine.pause_s = SLOW_S
        slow = await one_after_another(stand, 300)
        tritons["c:1"].engine.pause_s = USUAL_S
        await asyncio.sleep(25)
        recovered = await one_after_another(stand, 60)
        if policy == "least_outstanding":  # the prefix stays where it is
            assert min(usual.values()) == 20 == min(recovered.values())
        assert slow["c:1"] <= 6
        assert not stand.counter.ejections


@pytest.mark.parametrize("addresses", [("a:1", "c:1"), ("a:1", "b:1", "c:1")])
@clock.jumps
async def test_an_endpoint_that_is_far_slower_than_the_others_is_ejected_and_tried_again(addresses):
    tritons = {address: paced() for address in addresses}
    async with PoolStand(tritons) as stand:
        await checked(20)
        tritons["c:1"].engine.pause_s = SLOW_S
        with capture_logs() as lines:
            await asyncio.gather(*(stand.answered() for _ in range(30)))
        assert stand.states().pop("c:1") is EJECTED
        assert stand.counter.ejections == {"c:1": 1}
        (line,) = (one for one in lines if one["event"] == "endpoint is ejected")
        assert line["reason"] == "its answers are far slower than those of other endpoints"
        tritons["c:1"].engine.pause_s = USUAL_S
        await asyncio.sleep(30)
        await one_after_another(stand, 3)  # one of them tries it, and it begins slowly
        await asyncio.sleep(10)
        assert (await one_after_another(stand, 30))["c:1"] == 30 // len(addresses)


@pytest.mark.parametrize("endpoints", [2, 8])
@clock.jumps
async def test_nobody_is_slow_where_all_are_equally_slow_or_a_little_uneven(endpoints):
    random, tritons = Random(1), {f"{n}:1": paced(SLOW_S) for n in range(endpoints)}
    async with PoolStand(tritons) as stand:
        await checked(20)
        for _ in range(40):
            for triton in tritons.values():
                triton.engine.pause_s = SLOW_S * random.uniform(0.6, 1.5)
            await asyncio.gather(*(stand.answered() for _ in range(2 * endpoints)))
        assert not stand.counter.ejections
        assert min(stand.counter.begun.values()) > 0.7 * 80


@clock.jumps
async def test_a_client_that_reads_slowly_does_not_make_its_endpoint_slow():
    async with PoolStand(three()) as stand:
        await checked(20)
        await one_after_another(stand, 30)
        for _ in range(10):
            avoided = frozenset({"a:1", "b:1"})
            async for _ in stand.engine.generate(stand.request(avoids=avoided)):
                await asyncio.sleep(1)
        assert not stand.counter.ejections
        assert min((await one_after_another(stand, 30)).values()) == 10


@pytest.mark.parametrize(
    ("endpoints", "share", "most"),
    [(1, 0.5, 0), (2, 0.5, 1), (3, 0.5, 1), (4, 0.5, 2), (10, 0.5, 5), (10, 0.0, 1), (10, 1.0, 9)],
)
def test_at_most_a_share_but_one_and_never_the_last_healthy_one(endpoints, share, most):
    for ejected in range(most + 1):
        healthy = endpoints - ejected - 1
        may = may_eject(
            endpoints=endpoints, ejected=ejected, healthy_others=healthy, most_share=share
        )
        assert may == (ejected < most)


def away(stand: PoolStand) -> None:
    for triton in stand.tritons.values():
        triton.reason = "cannot be reached"


def drained(stand: PoolStand) -> None:
    stand.decisions.drained = frozenset(stand.tritons)


def unnamed(stand: PoolStand) -> None:
    stand.source.name()


@pytest.mark.parametrize(
    ("happens", "reason", "category"),
    [
        (away, "none of 2 .* a:1: cannot be reached", "no Triton server is ready"),
        (drained, "an operator drains it", "every Triton server is drained"),
        (unnamed, "no endpoint", "no Triton server is known"),
    ],
)
@clock.jumps
async def test_why_nothing_is_ready_names_endpoints_to_the_log_and_none_to_callers(
    happens, reason, category
):
    async with PoolStand({"a:1": ScriptedTriton(), "b:1": ScriptedTriton()}) as stand:
        happens(stand)
        await checked(2)
        with pytest.raises(NotReady, match=reason) as error:
            await stand.pools.load()
        assert error.value.category == category
