"""The choice for one stream: what it avoids, and where prompts and adapters draw it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from proxy.domain.errors import ModelUnavailable
from tests.doubles import clock
from tests.doubles.engine import FACTS
from tests.doubles.scripted_pools import DEMO, PoolStand, ScriptedTriton, checked

PROMPT = "".join(f"{number:07d} " for number in range(200))


def three() -> dict[str, ScriptedTriton]:
    return {f"{name}:1": ScriptedTriton() for name in "abc"}


@clock.jumps
async def test_what_a_request_avoids_is_not_chosen_while_another_serves():
    async with PoolStand(three()) as stand:
        for _ in range(12):
            await stand.answered(avoids=frozenset({"a:1", "c:1"}))
        assert stand.counter.begun == {"b:1": 12}
        assert stand.engine.has_another(stand.request(avoids=frozenset({"a:1", "c:1"})))
        assert not stand.engine.has_another(stand.request(avoids=frozenset(stand.tritons)))
        with pytest.raises(ModelUnavailable):
            await stand.answered(avoids=frozenset(stand.tritons))


@clock.jumps
async def test_equal_beginnings_go_to_one_endpoint_and_other_salts_do_not_share_it():
    async with PoolStand(three(), policy="prefix") as stand:
        await checked(20)

        async def place(**fields: object) -> str:
            route = stand.engine.route(stand.request(**fields))
            route.end()
            return route.place.endpoint

        first = await place(text=PROMPT)
        assert {await place(text=PROMPT + str(n)) for n in range(10)} == {first}
        salted = {await place(text=PROMPT, cache_salt=str(n)) for n in range(30)}
        assert len(salted) == 3
        route = stand.engine.route(stand.request(text=PROMPT))
        assert route.matched > 0.9
        route.end()


@clock.jumps
async def test_an_adapter_stays_where_it_is_loaded():
    models = (replace(DEMO, facts=replace(FACTS, adapters=("sql", "poet"))),)
    tritons = {f"{name}:1": ScriptedTriton(*models) for name in "abc"}
    async with PoolStand(tritons) as stand:
        await checked(20)
        card = stand.cards()[0]
        for name in ("sql", "poet"):
            adapter = replace(card, name=name, parent="demo")
            places = set()
            for number in range(10):
                request = stand.request(model=adapter, text=f"{number}")
                route = stand.engine.route(request)
                route.end()
                places.add(route.place.endpoint)
            assert len(places) == 1


@clock.jumps
async def test_what_an_endpoint_has_cached_is_no_work_there():
    async with PoolStand({"a:1": ScriptedTriton()}, policy="prefix") as stand:
        stand.tritons["b:1"] = ScriptedTriton()
        stand.source.name("a:1", "b:1")
        await checked(20)
        first = stand.engine.route(stand.request(text=PROMPT, max_tokens=1))
        tokens = stand.outstanding[1]
        first.end()
        again = stand.engine.route(stand.request(text=PROMPT, max_tokens=1))
        assert again.place == first.place
        assert stand.outstanding[1] < 0.1 * tokens
        again.end()
        assert stand.outstanding == (0, 0)
