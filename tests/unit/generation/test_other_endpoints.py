"""Requests that lose an endpoint before their first token: where they are sent again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from proxy.domain.completion import fold
from proxy.domain.errors import ModelUnavailable
from proxy.domain.events import OutputEvent
from proxy.models import readiness
from tests.doubles import clock
from tests.doubles.engine import ScriptedEngine, deltas
from tests.doubles.scripted_pools import DEMO, PoolStand, ScriptedTriton, build, checked
from tests.fixtures.lost_triton import Stand

LOST = ModelUnavailable("away", detail="UNAVAILABLE: the connection was lost")


def lossy() -> ScriptedTriton:
    triton = ScriptedTriton()
    triton.engine = ScriptedEngine(error=LOST)
    return triton


class PooledStand(Stand):
    """The whole service over a pool, with the program's own readiness checks."""

    def __init__(self, pools: PoolStand, **options: object) -> None:
        super().__init__(pools.engine, catalog=pools.pools, **options)
        self.registry._is_available = pools.pools.is_available
        self._pools = pools

    async def answer(self, **fields: object) -> list[OutputEvent]:
        """The events of one request, with checks beside it."""
        answer = self.begin(**fields)
        while not answer.done():
            await self.check()
            await asyncio.sleep(readiness.CHECK_EVERY_S)
        return await answer


@asynccontextmanager
async def pooled(
    tritons: dict[str, ScriptedTriton], *, probes: dict[str, float] | None = None, **options: object
) -> AsyncIterator[tuple[PoolStand, PooledStand]]:
    async with PoolStand(tritons, **(probes or {})) as pools:
        stand = PooledStand(pools, **options)
        await stand.check()
        yield pools, stand
        assert pools.outstanding == (0, 0)
        assert stand.admission.running == 0


@clock.jumps
async def test_it_goes_to_another_endpoint_at_once():
    tritons = {"a:1": lossy(), "b:1": lossy(), "c:1": ScriptedTriton()}

    async with pooled(tritons) as (_, stand):
        for number in range(6):
            began = asyncio.get_running_loop().time()
            assert fold(await stand.begin(id=f"r{number}")).text == "ab"
            assert asyncio.get_running_loop().time() == began
            await checked()
        assert len(tritons["c:1"].engine.requests) == 6
        for name in ("a:1", "b:1"):  # none came twice to an endpoint that lost it
            ids = [one.id.split("-")[0] for one in tritons[name].engine.requests]
            assert len(ids) == len(set(ids)) > 0


@clock.jumps
@pytest.mark.parametrize("most", [1, 2])
async def test_it_is_sent_again_so_often_at_most_however_many_endpoints_there_are(most):
    tritons = {f"{number}:1": lossy() for number in range(9)}

    async with pooled(tritons, most=most) as (_, stand):
        with pytest.raises(ModelUnavailable, match=f"lost {most + 1} times"):
            await stand.begin()
        assert sum(len(one.engine.requests) for one in tritons.values()) == most + 1


@clock.jumps
async def test_it_does_not_go_back_to_the_one_that_lost_it_when_another_came_meanwhile():
    tritons = {"a:1": lossy(), "b:1": ScriptedTriton()}

    async with pooled(tritons) as (_, stand):
        tritons["b:1"].reason = "it starts"
        await checked()
        tritons["a:1"].may_answer.clear()  # its next check takes longer than b's start
        answer = asyncio.create_task(stand.answer())
        await checked()
        tritons["b:1"].reason = None
        tritons["a:1"].may_answer.set()
        assert fold(await answer).text == "ab"
        assert len(tritons["a:1"].engine.requests) == 1


@clock.jumps
async def test_no_request_goes_to_another_build_than_it_was_prepared_for():
    tritons = {"a:1": lossy(), "b:1": ScriptedTriton(build(1))}

    tritons["a:1"].engine = ScriptedEngine(deltas("ab"), lost=2)
    async with pooled(tritons) as (_, stand):
        cards = {card.facts.created: card for card in stand.registry.model("demo").cards}
        assert len(cards) == 2
        answers = [fold(await stand.answer(id=f"r{n}")).text for n in range(32)]
        assert set(answers) == {"ab"}
    for triton, created in ((tritons["a:1"], DEMO.facts.created), (tritons["b:1"], 1)):
        assert {one.model.facts.created for one in triton.engine.requests} == {created}
