"""shadow: copies are compared and counted, and never change the caller's stream."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import aclosing
from dataclasses import replace
from types import SimpleNamespace

import pytest

from build_engines.deployments import ShadowEntry as Shadow
from proxy.domain.engine import EngineRequest
from proxy.domain.model import ModelCard
from proxy.domain.output import FinishReason, TokenDelta
from proxy.domain.request import Sampling
from proxy.generation.shadow import LOWEST_PRIORITY, ShadowTraffic
from proxy.telemetry.metrics import ShadowOutcome, ShadowResult
from tests.doubles.engine import FACTS, ScriptedEngine, deltas
from tests.unit.generation.scheduler import GivenScheduler

pytestmark = pytest.mark.anyio

CARD = ModelCard(name="m", triton_model="m", facts=FACTS, deployment="blue")
GREEN = replace(CARD, deployment="green")
SHADOW = Shadow(deployment="green", percent=50)


def asked(**fields) -> EngineRequest:
    given = {"id": "r", "model": CARD, "text": "hi", "timeout_s": 9.0}
    return EngineRequest(**{**given, "sampling": Sampling(temperature=0), **fields})


class Traffic:
    """Shadow traffic to one scripted engine and its scheduler, and what was counted of it. Stands
    for the registry, too.
    """

    def __init__(
        self,
        copies: ScriptedEngine,
        *,
        most: int = 8,
        number: float = 0.0,
        shadow: Shadow | None = SHADOW,
    ) -> None:
        self.copies = copies
        plan = SimpleNamespace(shadow=shadow)
        self.models = {"m": SimpleNamespace(plan=plan, cards=[CARD, GREEN])}
        self.scheduler = GivenScheduler()
        self.results: asyncio.Queue[ShadowResult] = asyncio.Queue()
        self.shadows = ShadowTraffic(
            self,
            copies,
            self.results.put_nowait,
            self.scheduler,
            most=most,
            draw=lambda: number,
        )

    def model(self, name: str) -> SimpleNamespace:
        return self.models[name]

    def is_available(self, card: ModelCard) -> bool:
        return True

    async def result(self) -> ShadowResult:
        return await asyncio.wait_for(self.results.get(), 30)

    def mirrored(self, given: Iterable[TokenDelta], request=None):
        request, engine = request or asked(), ScriptedEngine(given)
        return self.shadows.mirrored(request, engine.generate(request))


async def text(stream) -> bytes:
    async with aclosing(stream):
        return b"".join([b"".join(delta.token_bytes) async for delta in stream])


def cut(*tokens: bytes, finish=FinishReason.STOP, prompt_tokens=3) -> list[TokenDelta]:
    return [TokenDelta(tokens, prompt_tokens=prompt_tokens, finish=finish)]


@pytest.mark.parametrize(
    ("copied", "differences"),
    [
        (cut(b"a", b"bc"), ()),
        (cut(b"ab", b"c"), ()),
        (cut(b"a", b"bd"), ("text",)),
        (cut(b"a", b"bc", finish=FinishReason.LENGTH), ("finish_reason",)),
        (cut(b"abc"), ("completion_tokens",)),
        (
            [TokenDelta((b"a", b"bc"), prompt_tokens=4, finish=FinishReason.STOP)],
            ("prompt_tokens",),
        ),
        (cut(b"x", finish=FinishReason.LENGTH), ("text", "finish_reason", "completion_tokens")),
    ],
)
async def test_each_difference_is_counted(copied, differences):
    traffic = Traffic(ScriptedEngine(copied))
    async with traffic.shadows:
        await text(traffic.mirrored(cut(b"a", b"bc")))
        assert (await traffic.result()).differences == differences


@pytest.mark.parametrize(
    ("sampling", "is_comparable"),
    [
        (Sampling(temperature=0), True),
        (Sampling(temperature=1, seed=5), True),
        (Sampling(top_k=1), True),
        (Sampling(temperature=1), False),
        (Sampling(), False),
    ],
)
async def test_answers_without_a_seed_are_not_comparable(sampling, is_comparable):
    traffic = Traffic(ScriptedEngine(cut(b"a")))
    async with traffic.shadows:
        await text(traffic.mirrored(cut(b"a"), asked(sampling=sampling)))
        assert (await traffic.result()).is_comparable == is_comparable


async def test_the_callers_stream_does_not_wait_for_its_copy():
    traffic = Traffic(ScriptedEngine(deltas("sa"), hangs=True))
    async with traffic.shadows:
        assert await text(traffic.mirrored(deltas("same"))) == b"same"
        assert traffic.results.empty()
        await asyncio.wait_for(traffic.copies.given.wait(), 30)
    assert (await traffic.result()).outcome is ShadowOutcome.ABANDONED, "the end of the proxy"
    assert traffic.copies.closed_early == 1


async def test_a_caller_that_disconnects_ends_the_copy():
    traffic = Traffic(ScriptedEngine(deltas("sa"), hangs=True))
    async with traffic.shadows:
        stream = traffic.mirrored(deltas("same"))
        await anext(stream)
        await asyncio.wait_for(traffic.copies.given.wait(), 30)
        await stream.aclose()
        assert (await traffic.result()).outcome is ShadowOutcome.ABANDONED


async def test_no_more_copies_run_than_may():
    traffic = Traffic(ScriptedEngine(hangs=True), most=2)
    async with traffic.shadows:
        for stream in [traffic.mirrored(deltas("same")) for _ in range(3)]:
            assert await text(stream) == b"same"
        assert (await traffic.result()).outcome is ShadowOutcome.DROPPED
        assert len(traffic.copies.requests) == 2


@pytest.mark.parametrize(
    ("number", "card", "shadow"),
    [(0.5, CARD, SHADOW), (0.99, CARD, SHADOW), (0.0, GREEN, SHADOW), (0.0, CARD, None)],
)
async def test_a_request_that_is_not_copied_keeps_its_own_stream(number, card, shadow):
    traffic = Traffic(ScriptedEngine(deltas("same")), number=number, shadow=shadow)
    request = asked(model=card)
    own = ScriptedEngine(deltas("same")).generate(request)
    async with traffic.shadows:
        assert traffic.shadows.mirrored(request, own) is own
        assert await text(own) == b"same"
    assert traffic.copies.requests == []


async def test_a_copy_has_the_lowest_class_a_tenant_of_its_own_and_no_patience():
    traffic = Traffic(ScriptedEngine(deltas("abc")))
    async with traffic.shadows:
        await text(traffic.mirrored(deltas("abc")))
        await traffic.result()
    (permit,), (ticket,) = traffic.scheduler.permits, traffic.scheduler.tickets
    assert (ticket.queue, ticket.priority, ticket.patience_s) == ("default/m", LOWEST_PRIORITY, 0)
    assert ticket.may_yield
    assert ticket.tenant == "(shadow)"
    assert traffic.scheduler.held == 0
    assert permit.tokens == sum(len(each.token_bytes) for each in deltas("abc"))
