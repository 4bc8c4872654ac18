"""What all pools serve together."""

from __future__ import annotations

from dataclasses import replace

import pytest

from proxy.domain.engine import NotReady
from proxy.pools import pool
from tests.doubles import clock
from tests.doubles.scripted_pools import DEMO, PoolStand, ScriptedTriton, build, checked


@clock.jumps
async def test_it_has_every_model_of_every_endpoint_once():
    other = replace(DEMO, name="other")
    tritons = {"a:1": ScriptedTriton(DEMO, other), "b:1": ScriptedTriton(DEMO)}
    async with PoolStand(tritons) as stand:
        assert sorted(one.name for one in await stand.pools.load()) == ["demo", "other"]


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


@clock.jumps
async def test_builds_that_are_gone_are_forgotten(monkeypatch):
    monkeypatch.setattr(pool, "MOST_MODELS_REMEMBERED", 10)
    async with PoolStand({"a:1": (triton := ScriptedTriton())}) as stand:
        for created in range(50):
            triton.models = [build(created, versions=frozenset({created + 1}))]
            await checked(0.6)
        assert len(stand.pool._interned) <= 10
        assert await stand.answered() == "ab"
