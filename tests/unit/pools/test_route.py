"""The choice for one stream: what it avoids, and where prompts and adapters draw it."""

from __future__ import annotations

from tests.doubles import clock
from tests.doubles.scripted_pools import PoolStand, ScriptedTriton, checked

PROMPT = "".join(f"{number:07d} " for number in range(200))


def three() -> dict[str, ScriptedTriton]:
    return {f"{name}:1": ScriptedTriton() for name in "abc"}


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
