"""An endpoint's state, as checks, streams and operators change it; one log line for each change."""

from __future__ import annotations

import asyncio

import pytest
from structlog.testing import capture_logs

from proxy.domain.endpoints import EndpointState
from proxy.domain.errors import ModelUnavailable
from tests.doubles import clock
from tests.doubles.scripted_pools import PoolStand, ScriptedTriton, build, checked

READY, NOT_READY = EndpointState.READY, EndpointState.NOT_READY
LOST = ModelUnavailable("away", detail="UNAVAILABLE: the connection was lost")


@clock.jumps
async def test_each_change_of_its_readiness_is_one_line_and_it_keeps_its_models():
    async with PoolStand({"a:1": (triton := ScriptedTriton())}) as stand:
        with capture_logs() as lines:
            triton.reason = "cannot be reached"
            await checked(5)
            assert stand.states() == {"a:1": NOT_READY}
            assert stand.pools.endpoints()[0].reason == "cannot be reached"
            assert [one.name for one in stand.pools.models()] == ["demo"]
            assert not stand.pools.is_available(stand.cards()[0])
            triton.reason = None
            await checked(5)
        assert stand.states() == {"a:1": READY}
        events = [line["event"] for line in lines if line.get("endpoint") == "a:1"]
        assert events == ["endpoint is not ready", "endpoint is ready"]


@pytest.mark.parametrize("fault", [KeyError("ready"), ValueError("no number"), RuntimeError()])
@clock.jumps
async def test_an_answer_that_nobody_foresaw_ends_no_watch(fault):
    async with PoolStand({"a:1": (triton := ScriptedTriton())}) as stand:
        triton.fault = fault
        await checked()
        assert type(fault).__name__ in str(stand.pools.endpoints()[0].reason)
        triton.fault = None
        await checked()
        assert stand.states() == {"a:1": READY}


@clock.jumps
async def test_a_lost_stream_stops_traffic_until_a_check_that_began_later_succeeds():
    async with PoolStand({"a:1": (triton := ScriptedTriton())}) as stand:
        triton.may_answer.clear()
        await checked()  # a check is under way
        triton.engine.error, triton.engine.scripts = LOST, [[]]
        await stand.lose(1)
        assert stand.states() == {"a:1": NOT_READY}
        checks = triton.checks
        triton.may_answer.set()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert (triton.checks, stand.states()) == (checks, {"a:1": NOT_READY})
        await checked()
        assert triton.checks > checks
        assert stand.states() == {"a:1": READY}


@clock.jumps
async def test_another_build_behind_the_same_address_is_seen_when_a_stream_was_lost():
    async with PoolStand({"a:1": (triton := ScriptedTriton())}) as stand:
        triton.models = [build(1_800_000_000)]
        triton.engine.error, triton.engine.scripts = LOST, [[]]
        await stand.lose(1)
        await asyncio.sleep(0.2)  # far less than the next regular look at the models
        assert [one.facts.created for one in stand.pools.models()] == [1_800_000_000]


@clock.jumps
async def test_a_drained_endpoint_ends_its_streams_and_gets_no_new_ones():
    async with PoolStand({"a:1": ScriptedTriton()}) as stand:
        stream = await stand.begun()
        await stand.decisions.drain("a:1", actor="me")
        await checked()
        assert stand.states() == {"a:1": EndpointState.DRAINING}
        with pytest.raises(ModelUnavailable):
            await stand.answered()
        reason = stand.pools.why_not_ready()
        assert reason is not None
        assert "an operator drains it" in str(reason)
        assert [delta async for delta in stream]
        assert stand.states() == {"a:1": EndpointState.DRAINED}
        await stand.decisions.undrain("a:1", actor="me")
        await checked()
        assert await stand.answered() == "ab"


@clock.jumps
async def test_streams_of_a_build_that_was_replaced_still_count():
    async with PoolStand({"a:1": (triton := ScriptedTriton())}) as stand:
        old = await stand.begun()
        triton.models = [build(1_800_000_000, versions=frozenset({2}))]
        await checked()
        assert [one.facts.created for one in stand.pools.models()] == [1_800_000_000]
        new = await stand.begun()
        assert stand.outstanding[0] == 2
        await stand.decisions.drain("a:1", actor="me")
        await checked()
        await new.aclose()
        assert stand.states() == {"a:1": EndpointState.DRAINING}
        await old.aclose()
        assert stand.states() == {"a:1": EndpointState.DRAINED}
        assert stand.outstanding == (0, 0)
