"""An endpoint's state, as checks, streams and operators change it; one log line for each change."""

from __future__ import annotations

import asyncio

import pytest
from structlog.testing import capture_logs

from proxy.domain.endpoints import EndpointState
from proxy.domain.errors import EngineFailed, ErrorCode, ModelUnavailable, RateLimited
from proxy.domain.model import LoadedModel
from proxy.pools.pool import MOST_TRIED_AGAIN_S
from tests.doubles import clock
from tests.doubles.engine import FACTS
from tests.doubles.scripted_pools import (
    DEMO,
    TRIED_TOKENS,
    PoolStand,
    ScriptedTriton,
    build,
    checked,
)

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
        assert stand.states() == {"a:1": EndpointState.DRAINING}, "at once, as the answer shows it"
        with pytest.raises(ModelUnavailable):
            await stand.answered()
        reason = stand.pools.why_not_ready()
        assert reason is not None
        assert "an operator drains it" in str(reason)
        assert [delta async for delta in stream]
        assert stand.states() == {"a:1": EndpointState.DRAINED}
        await stand.decisions.undrain("a:1", actor="me")
        assert stand.states() == {"a:1": EndpointState.READY}
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


FAILED = EngineFailed("The model server failed.", detail="CUDA error at /opt/engine")


@clock.jumps
async def test_each_model_generates_once_each_time_that_its_endpoint_becomes_ready():
    triton = ScriptedTriton(DEMO, LoadedModel(name="other", facts=FACTS))
    async with PoolStand({"a:1": triton}) as stand:
        await checked(100)
        assert triton.trials == ["demo", "other"]
        triton.reason = "cannot be reached"
        await checked(5)
        triton.reason = None
        await checked(5)
        assert len(triton.trials) == 4
        triton.models[0] = build(1_800_000_000)  # loaded anew
        await checked(100)
        assert triton.trials[4:] == ["demo"]
        assert not triton.engine.requests
        assert not stand.counter.begun
        assert stand.counter.tried_tokens == {"demo": 3 * TRIED_TOKENS, "other": 2 * TRIED_TOKENS}


@clock.jumps
async def test_a_model_that_does_not_generate_gets_nothing_and_says_why_and_holds_up_no_other():
    broken = ScriptedTriton(DEMO, LoadedModel(name="other", facts=FACTS))
    broken.trial_faults["demo"] = FAILED
    with capture_logs() as lines:
        async with PoolStand({"a:1": broken}) as stand:
            await checked(300)
            demo, other = stand.cards()
            assert [stand.pools.is_available(one) for one in (demo, other)] == [False, True]
            (line,) = [one for one in lines if one["event"] == "model is not ready"]
            reason = "the model 'demo' does not generate: CUDA error at /opt/engine"
            assert (line["model"], line["endpoint"], line["reason"]) == ("demo", "a:1", reason)
            assert stand.pools.endpoints()[0].reason == reason
            (concern,) = stand.pools.concerns()
            shown = "a model does not generate: The model server failed"
            assert concern.message == f"{shown} (1 of 2 on all endpoints)"
            tried = len(broken.trials)
            assert 10 <= tried <= 6 + 300 / MOST_TRIED_AGAIN_S, "with growing pauses"
            broken.trial_faults["other"] = FAILED
            broken.reason = "it died"
            await checked(2)
            broken.reason = None
            await checked(2)
            assert stand.states() == {"a:1": NOT_READY}
            trouble = stand.pools.why_not_ready()
            assert trouble is not None
            assert (str(trouble), trouble.category) == (reason, shown)
            broken.trial_faults.clear()
            await checked(MOST_TRIED_AGAIN_S)
            assert stand.states() == {"a:1": READY}
            assert not stand.pools.concerns()
            assert await stand.answered() == "ab"


@clock.jumps
async def test_a_trial_that_hangs_holds_up_neither_the_start_nor_another_endpoint():
    hanging, other = ScriptedTriton(), ScriptedTriton()
    hanging.trial_faults["demo"] = asyncio.Event()
    began = asyncio.get_running_loop().time()
    async with PoolStand({"a:1": hanging, "b:1": other}) as stand:
        assert asyncio.get_running_loop().time() - began < 4
        assert stand.states() == {"a:1": NOT_READY, "b:1": READY}
        assert [await stand.answered() for _ in range(4)] == ["ab"] * 4
        assert not hanging.engine.requests


@clock.jumps
async def test_streams_that_survive_a_missed_check_are_trial_enough_and_a_lost_one_is_not():
    async with PoolStand({"a:1": (triton := ScriptedTriton())}) as stand:
        stream = await stand.begun()
        triton.reason = "DEADLINE_EXCEEDED"
        await checked(3)
        triton.reason = None
        await checked(3)
        assert len(triton.trials) == 1
        assert stand.states() == {"a:1": READY}
        triton.engine.error, triton.engine.scripts = LOST, [[]]
        await stand.lose(1)
        await checked(3)
        assert len(triton.trials) == 2
        await stream.aclose()


@clock.jumps
async def test_an_engine_whose_queue_is_full_generates():
    full = ScriptedTriton()
    full.trial_faults["demo"] = RateLimited("The queue is full.", code=ErrorCode.QUEUE_FULL)
    async with PoolStand({"a:1": full}) as stand:
        await checked()
        assert stand.states() == {"a:1": READY}
