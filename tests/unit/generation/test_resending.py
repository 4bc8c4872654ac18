"""Requests that lose Triton before their first token: which are sent again, when, how often."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from itertools import pairwise

import pytest

from proxy.access.start_gate import AT_ONCE
from proxy.domain.completion import fold
from proxy.domain.constraint import Constraint, GuideKind
from proxy.domain.errors import (
    EngineFailed,
    ErrorCode,
    GuidePending,
    InvalidRequest,
    ModelUnavailable,
    RateLimited,
)
from proxy.generation.stream import engine_stream
from tests.doubles.engine import ScriptedEngine, deltas
from tests.doubles.watched_source import until
from tests.fixtures.lost_triton import LOST, SlowCatalog, Stand

pytestmark = pytest.mark.anyio


async def test_it_is_sent_again_when_triton_is_back_with_an_id_of_its_own_and_keeps_its_permit():
    stand = Stand(ScriptedEngine(deltas("ab"), lost=1))
    await stand.look()
    answer = stand.begin()
    await stand.waiting()
    await stand.look("it died")
    await stand.look("it starts")
    assert not answer.done()
    assert (len(stand.engine.requests), stand.admission.running) == (1, 1)
    await stand.look()
    assert fold(await answer).text == "ab"
    first, second = stand.engine.requests
    assert (first.id, second.id) == ("r1", "r1-resent1")
    assert second.timeout_s < first.timeout_s
    assert replace(second, id="r1", timeout_s=60) == replace(first, timeout_s=60)
    assert stand.admission.running == 0
    assert [one.resends for one in stand.records] == [1]


async def test_a_look_that_was_under_way_when_triton_died_does_not_count():
    stand = Stand(ScriptedEngine(deltas("ab"), lost=1), catalog=(slow := SlowCatalog()))
    slow.may_answer.set()
    await stand.look()
    slow.may_answer.clear()
    early = asyncio.create_task(stand.look())
    await asyncio.sleep(0)
    answer = stand.begin()
    await stand.waiting()
    slow.may_answer.set()
    await early
    await asyncio.sleep(0.01)
    assert len(stand.engine.requests) == 1
    await stand.look()
    assert fold(await answer).text == "ab"


async def test_a_stream_that_just_ends_before_its_first_token_is_sent_again_so_often_at_most():
    stand = Stand(ScriptedEngine(then=[deltas("ab")]))
    await stand.look()
    answer = stand.begin()
    await stand.waiting()
    await stand.look()
    assert fold(await answer).text == "ab"

    stand = Stand(ScriptedEngine(), most=1)
    await stand.look()
    answer = stand.begin()
    await stand.waiting()
    await stand.look()
    with pytest.raises(ModelUnavailable, match="lost 2 times") as failed:
        await answer
    assert failed.value.detail == engine_stream.UNFINISHED


async def test_one_that_just_ends_in_the_middle_and_reports_no_ids_is_an_error():
    stand = Stand(ScriptedEngine(deltas("ab", None)))
    await stand.look()
    with pytest.raises(ModelUnavailable, match="ended this answer too early"):
        await stand.begin()


@pytest.mark.parametrize(
    "error",
    [
        EngineFailed("it broke"),
        GuidePending("too much at once"),
        RateLimited("full", code=ErrorCode.QUEUE_FULL),
        InvalidRequest("too long", code=ErrorCode.CONTEXT_LENGTH_EXCEEDED, param="prompt"),
    ],
    ids=lambda error: error.code,
)
async def test_what_the_engine_itself_reports_is_final(error):
    stand = Stand(ScriptedEngine(error=error))
    await stand.look()
    with pytest.raises(type(error), match=error.message):
        await stand.begin()
    assert len(stand.engine.requests) == 1


async def test_an_endpoint_that_was_no_good_twice_gets_a_pause(monkeypatch):
    """Triton calls itself ready while a Python model of its is dead, until it is restarted."""
    monkeypatch.setattr(engine_stream, "PAUSE_S", pause_s := 0.2)

    stand = Stand(ScriptedEngine(deltas("ab"), lost=2))
    await stand.look()
    answer = stand.begin()
    await stand.waiting()
    back = time.monotonic()
    await stand.back()
    await until(lambda: len(stand.engine.requests) == 2)
    await until(lambda: len(stand.recovery_queue.waiting()) == 1)
    assert time.monotonic() - back >= pause_s
    await stand.back()
    assert fold(await answer).text == "ab"


async def test_the_requests_time_bounds_the_wait_and_the_error_says_what_happened():
    stand = Stand(ScriptedEngine(lost=1), whole_s=0.05)
    await stand.look()
    answer = stand.begin()
    await stand.waiting()
    await stand.look("no such host")
    with pytest.raises(ModelUnavailable, match=r"within the request's 0\.05 sec") as failed:
        await answer
    assert failed.value.detail == f"{LOST.detail}; since then: no such host"
    assert not stand.recovery_queue.waiting()
    assert (len(stand.engine.requests), stand.admission.running) == (1, 0)


async def test_to_wait_for_triton_is_not_the_engines_silence():
    stand = Stand(ScriptedEngine(deltas("ab"), lost=1), silence_s=0.02)
    await stand.look()
    answer = stand.begin()
    await stand.waiting()
    await asyncio.sleep(0.06)
    await stand.back()
    assert fold(await answer).text == "ab"


async def test_a_client_that_disconnects_while_it_waits_ends_at_once():
    stand = Stand(ScriptedEngine(deltas("ab"), lost=1))
    await stand.look()
    answer = stand.begin()
    await stand.waiting()
    answer.cancel()
    with pytest.raises(asyncio.CancelledError):
        await answer
    assert not stand.recovery_queue.waiting()
    assert stand.admission.running == 0
    await stand.back()
    assert len(stand.engine.requests) == 1


async def test_what_was_prepared_for_one_build_is_not_sent_to_another():
    stand = Stand(ScriptedEngine(deltas("ab"), lost=1))
    await stand.look()
    answer = stand.begin()
    await stand.waiting()
    stand.catalog.facts = replace(stand.catalog.facts, created=1_800_000_000)
    await stand.back()
    with pytest.raises(ModelUnavailable, match="another build"):
        await answer
    assert len(stand.engine.requests) == 1


async def test_a_choice_that_had_a_token_ends_those_that_wait():
    engine = ScriptedEngine(deltas("a", None), error=LOST, then=[[]])
    stand = Stand(engine)
    await stand.look()
    with pytest.raises(ModelUnavailable, match="away"):
        await stand.begin(choices=3)
    assert not stand.recovery_queue.waiting()
    assert len(engine.requests) == 3


async def test_a_guides_trial_that_loses_triton_is_done_again():
    stand = Stand(ScriptedEngine(deltas("ab")))
    stand.tokenizer.lost = 1
    await stand.look()
    guide = Constraint(kind=GuideKind.REGEX, text="a+b", field="guided_regex")
    answer = stand.begin(constraint=guide)
    await stand.waiting()
    await stand.back()
    assert fold(await answer).text == "ab"
    assert (len(stand.tokenizer.asked), len(stand.engine.requests)) == (2, 1)


async def test_a_herd_begins_a_few_in_each_turn_of_the_loop():
    herd = 40
    stand = Stand(ScriptedEngine(deltas("ab"), lost=herd))
    await stand.look()
    answers = [stand.begin(id=f"r{number}") for number in range(herd)]
    await stand.waiting(herd)
    back = asyncio.create_task(stand.back())
    begun = [herd]
    while not all(answer.done() for answer in answers):
        await asyncio.sleep(0)
        begun.append(len(stand.engine.requests))
    await back
    steps = [after - before for before, after in pairwise(begun)]
    assert sum(steps) == herd
    assert max(steps) <= AT_ONCE
