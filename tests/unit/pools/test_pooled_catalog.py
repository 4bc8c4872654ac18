"""What all pools serve together."""

from __future__ import annotations

from dataclasses import replace

import pytest

from proxy.domain.engine import NotReady
from proxy.pools import pool_set
from tests.doubles import clock
from tests.doubles.scripted_pools import DEMO, PoolStand, ScriptedTriton, build, checked


def test_it_has_every_model_of_every_endpoint_once():
    async def run() -> None:
        other = replace(DEMO, name="other")
        tritons = {"a:1": ScriptedTriton(DEMO, other), "b:1": ScriptedTriton(DEMO)}
        async with PoolStand(tritons) as stand:
            assert sorted(one.name for one in await stand.catalog.load()) == ["demo", "other"]
            assert stand.catalog.has_news()
            assert not stand.catalog.has_news()
            await checked(5)
            assert not stand.catalog.has_news()

    clock.run(run())


def test_a_model_without_a_ready_endpoint_is_known_and_not_available():
    async def run() -> None:
        other = replace(DEMO, name="other")
        tritons = {"a:1": ScriptedTriton(DEMO), "b:1": ScriptedTriton(other)}
        async with PoolStand(tritons) as stand:
            tritons["b:1"].reason = "it died"
            await checked()
            assert stand.catalog.has_news()
            await stand.catalog.check_ready({"demo", "other"})
            by_name = {
                one.name: replace(card, triton_model=one.name)
                for one, card in zip(stand.pools.models(), stand.cards(), strict=True)
            }
            assert stand.catalog.is_available(by_name["demo"])
            assert not stand.catalog.is_available(by_name["other"])

    clock.run(run())


def test_why_nothing_is_ready_names_an_endpoint_to_the_log_and_none_to_callers():
    async def run() -> None:
        tritons = {"a:1": ScriptedTriton(), "b:1": ScriptedTriton()}
        async with PoolStand(tritons) as stand:
            for triton in tritons.values():
                triton.reason = "cannot be reached"
            await checked()
            with pytest.raises(NotReady, match=r"none of 2 .* a:1: cannot be reached") as error:
                await stand.catalog.load()
            assert "a:1" not in error.value.category

    clock.run(run())


def test_drained_endpoints_are_the_reason_when_there_are_no_others():
    async def run() -> None:
        tritons = {"a:1": ScriptedTriton(), "b:1": ScriptedTriton()}
        async with PoolStand(tritons) as stand:
            for address in tritons:
                await stand.decisions.drain(address, actor="me")
            await checked()
            with pytest.raises(NotReady, match="an operator drains it") as error:
                await stand.catalog.check_ready(())
            assert error.value.category == "every Triton server is drained"

    clock.run(run())


def test_without_endpoints_the_reason_is_that_none_is_known():
    async def run() -> None:
        async with PoolStand({}) as stand:
            with pytest.raises(NotReady, match="no endpoint") as error:
                await stand.catalog.load()
            assert error.value.category == "no Triton server is known"

    clock.run(run())


def test_builds_that_are_gone_are_forgotten(monkeypatch):
    monkeypatch.setattr(pool_set, "MOST_MODELS_REMEMBERED", 10)

    async def run() -> None:
        async with PoolStand({"a:1": (triton := ScriptedTriton())}) as stand:
            for created in range(50):
                triton.models = [build(created, versions=frozenset({created + 1}))]
                await checked(0.6)
            assert len(stand.pools._interned) <= 10
            assert await stand.answered() == "ab"

    clock.run(run())
