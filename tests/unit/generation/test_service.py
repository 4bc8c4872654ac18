"""Service: the chain from token bytes to events, over a scripted engine."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.access.concurrency import ModelConcurrency
from proxy.access.guide_precheck import GuidePrecheck
from proxy.access.log_prob_budget import LogProbBudget
from proxy.access.start_gate import StartGate
from proxy.domain.completion import fold
from proxy.domain.engine import NotReady
from proxy.domain.errors import (
    EngineFailed,
    ModelUnavailable,
    RateLimited,
)
from proxy.domain.events import Events, Finished, OutputEvent
from proxy.domain.generation import Delivery
from proxy.domain.model import LoadedModel
from proxy.domain.output import FinishReason, TokenDelta
from proxy.domain.request import (
    ChatPrompt,
    GenerationRequest,
    Message,
    TextPrompt,
    TokenPrompt,
)
from proxy.generation.service import Access, Service
from proxy.generation.stream.time_limits import TimeLimits
from proxy.models.recovery_queue import RecoveryQueue
from proxy.models.registry import Registry
from proxy.telemetry.metrics import Metrics
from tests.doubles.engine import FACTS, ScriptedEngine, deltas
from tests.doubles.sandbox import InProcess
from tests.doubles.shadow import without_shadows
from tests.doubles.tokenizer import ByteTokenizer
from tests.doubles.tools import ScriptedTools
from tests.fixtures.limits import unlimited


def ready() -> Registry:
    registry = Registry({})
    registry.serve([LoadedModel(name="demo", facts=FACTS)])
    return registry


def service(
    engine: ScriptedEngine,
    registry: Registry | None = None,
    admission: ModelConcurrency | None = None,
    stall_timeout_s: float = 9,
) -> Service:
    gate = StartGate()
    access = Access(
        concurrency=admission or ModelConcurrency(),
        limiter=unlimited(),
        guide_precheck=GuidePrecheck(ByteTokenizer()),
        log_prob_budget=LogProbBudget(1_000_000),
    )
    registry = registry or ready()
    return Service(
        registry,
        engine,
        Metrics().generations,
        access,
        ScriptedTools(),
        InProcess(),
        gate,
        RecoveryQueue(gate),
        limits=TimeLimits(silence_s=stall_timeout_s, whole_s=9),
        max_resends=0,
        shadows=without_shadows(registry, engine),
    )


SERVED = ready().card("demo")


def request(prompt="x", model="demo", **fields) -> GenerationRequest:
    prompt = TextPrompt(text=prompt) if isinstance(prompt, str) else prompt
    return GenerationRequest(id="r1", model=model, prompt=prompt, **fields)


def events_of(serving: Service, asked: GenerationRequest) -> Events:
    return serving.generate(asked, SERVED).events


async def collected(engine: ScriptedEngine, asked: GenerationRequest) -> list[OutputEvent]:
    return [event async for event in events_of(service(engine), asked)]


def answer(engine: ScriptedEngine, asked: GenerationRequest):
    return fold(asyncio.run(collected(engine, asked)))


@given(st.text(min_size=1), st.sampled_from(FinishReason))
def test_text_usage_and_reason_are_the_engines(text, reason):
    completion = answer(ScriptedEngine(deltas(text, reason)), request())
    assert completion.text == text
    assert completion.reason is reason
    assert completion.usage.prompt_tokens == 7
    assert completion.usage.cached_tokens == 4
    assert completion.usage.completion_tokens == len(text.encode()) + 1


def test_a_stop_string_ends_the_answer_the_engine_and_the_count():
    engine = ScriptedEngine(deltas("one two three", None), hangs=True)
    completion = answer(engine, request(stop=("two",)))
    assert completion.text == "one "
    assert completion.reason is FinishReason.STOP
    assert completion.usage.completion_tokens == len("one two")
    assert engine.closed_early == 1


def test_a_stop_string_inside_one_delta_counts_tokens_up_to_itself():
    delta = TokenDelta((b"a", b"b", b"c"), prompt_tokens=1, finish=FinishReason.LENGTH)
    completion = answer(ScriptedEngine([delta]), request(stop=("b",)))
    assert (completion.text, completion.reason) == ("a", FinishReason.STOP)
    assert completion.usage.completion_tokens == 2


def test_held_back_text_comes_out_at_the_end():
    completion = answer(ScriptedEngine(deltas("abEN", FinishReason.LENGTH)), request(stop=("END",)))
    assert (completion.text, completion.reason) == ("abEN", FinishReason.LENGTH)


def test_a_stream_that_just_ends_is_an_error():
    with pytest.raises(EngineFailed, match="without a finish reason"):
        asyncio.run(collected(ScriptedEngine(deltas("ab", None)), request()))


def test_an_engines_error_comes_after_the_text_before_it():
    async def run():
        engine = ScriptedEngine(deltas("ab", None), error=EngineFailed("it broke"))
        events = events_of(service(engine), request())
        assert [(await anext(events)).text, (await anext(events)).text] == ["a", "b"]
        await anext(events)

    with pytest.raises(EngineFailed, match="it broke"):
        asyncio.run(run())


def test_closing_early_closes_the_engine():
    async def run():
        engine = ScriptedEngine(deltas("abc", None), hangs=True)
        events = events_of(service(engine), request())
        await anext(events)
        await events.aclose()
        return engine.closed_early

    assert asyncio.run(run()) == 1


def test_a_permit_lives_as_long_as_the_stream():
    async def run():
        limit = ModelConcurrency(1)
        serving = service(ScriptedEngine(deltas("abc", None), hangs=True), admission=limit)
        events = events_of(serving, request())
        assert limit.running == 0
        await anext(events)
        with pytest.raises(RateLimited):
            await anext(events_of(serving, request()))
        await events.aclose()
        return limit.running

    assert asyncio.run(run()) == 0


@pytest.mark.parametrize(
    ("prompt", "text", "ids", "special"),
    [
        (
            ChatPrompt(messages=(Message(role="user", content="hi"),)),
            "<user>hi\n<assistant>",
            None,
            False,
        ),
        (TextPrompt(text="hi"), "hi", None, True),
        (TokenPrompt(ids=(4, 5)), None, (4, 5), True),
    ],
)
def test_each_kind_of_prompt_reaches_the_engine_its_own_way(prompt, text, ids, special):
    engine = ScriptedEngine(deltas("a"))
    answer(engine, request(prompt))
    seen = engine.requests[0]
    assert (seen.text, seen.token_ids, seen.add_special_tokens) == (text, ids, special)
    assert (seen.id, seen.timeout_s) == ("r1", 9)


def test_a_suspended_registry_refuses_with_the_reason():
    registry = ready()
    registry.suspend(NotReady("at 10.0.0.1:8001", "Triton is away"))
    with pytest.raises(ModelUnavailable, match="Triton is away"):
        service(ScriptedEngine(), registry).generate(request(), SERVED)


@pytest.mark.anyio
@pytest.mark.parametrize("most", [3, 5, None], ids=["early", "late", "to the end"])
async def test_the_report_counts_the_tokens_of_all_choices_also_of_one_that_is_closed(most):
    """One prompt of 7 tokens, and a token for each event that has text."""
    seen, reported = 0, 0
    engine = ScriptedEngine(deltas("abc"))
    generation = service(engine).generate(request(choices=2), SERVED, Delivery.LIVE)
    async with aclosing(generation.events) as events:
        async for event in events:
            seen += 1
            reported += event.usage.completion_tokens if isinstance(event, Finished) else 0
            if seen == most:
                break
    usage = generation.record.usage
    assert usage is not None
    assert usage.prompt_tokens == 7
    if most is None:
        assert usage.completion_tokens == reported == 8
    else:
        assert most <= usage.completion_tokens <= 8
