"""Operators' decisions: those in memory and in the store change alike."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, nullcontext
from functools import partial
from typing import Any

import pytest

from proxy.access.store.store import Store
from proxy.domain.endpoints import KEPT_CHANGES, Decisions
from proxy.domain.errors import Conflict, ErrorCode, InvalidRequest
from proxy.pools.memory_decisions import MemoryDecisions
from tests.unit.access.store.samples import PEPPER

pytestmark = pytest.mark.anyio

ONE, TWO = "10.0.0.1:8001", "[fd00::2]:8001"
ACTOR = "key:tester"
Open = Callable[[], Any]


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
def opens(request, tmp_path) -> Open:
    """opens() -> one more proxy's decisions, over the same database; in memory, the same ones."""
    if request.param == "memory":
        return partial(nullcontext, MemoryDecisions())
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path / 'store.db'}"
    else:
        url = request.getfixturevalue("postgres_server").create(f"decisions{time.time_ns()}")

    @asynccontextmanager
    async def stored() -> AsyncIterator[Decisions]:
        async with Store(url, PEPPER) as store:
            yield store.decisions

    return stored


async def eventually(is_so: Callable[[], bool]) -> None:
    """Fails after a minute, which a busy machine may need."""
    for _ in range(6000):
        if is_so():
            return
        await asyncio.sleep(0.01)
    pytest.fail("this never became true")


@pytest.fixture
async def both(opens) -> AsyncIterator[tuple[Decisions, Decisions]]:
    """The decisions of two proxies."""
    async with opens() as one, opens() as other:
        yield one, other


async def test_a_drained_endpoint_is_drained_in_every_process_until_it_is_undrained(both):
    one, other = both
    await one.drain(ONE, actor=ACTOR)
    assert one.drained == {ONE}
    await other.drain(TWO, actor=ACTOR)
    assert other.drained == {ONE, TWO}
    await eventually(lambda: one.drained == {ONE, TWO})
    await one.drain(ONE, actor=ACTOR)
    await one.undrain(ONE, actor=ACTOR)
    await one.undrain(ONE, actor=ACTOR)
    assert one.drained == {TWO}
    await eventually(lambda: other.drained == {TWO})


async def test_weights_are_rolled_back_change_by_change_to_those_of_models_yaml(both):
    one, other = both
    assert one.weights("demo") is None
    await one.set_weights("demo", {"blue": 1.0, "green": 0.0}, actor=ACTOR)
    await other.set_weights("demo", {"blue": 0.25, "green": 0.75}, actor=ACTOR)
    await other.set_weights("demo", {"blue": 0.25, "green": 0.75}, actor=ACTOR)
    await eventually(lambda: one.weights("demo") == {"blue": 0.25, "green": 0.75})
    assert one.weights("another") is None
    assert await one.roll_back("demo", actor=ACTOR) == {"blue": 1.0, "green": 0.0}
    assert one.weights("demo") == {"blue": 1.0, "green": 0.0}
    assert await one.roll_back("demo", actor=ACTOR) is None
    await eventually(lambda: other.weights("demo") is None)
    for decisions in (one, other):
        with pytest.raises(Conflict) as refused:
            await decisions.roll_back("demo", actor=ACTOR)
        assert refused.value.code is ErrorCode.NO_EARLIER_WEIGHTS


async def test_only_the_last_changes_are_kept(both):
    one, _ = both
    for number in range(KEPT_CHANGES + 3):
        await one.set_weights("demo", {"blue": float(number)}, actor=ACTOR)
    last = [await one.roll_back("demo", actor=ACTOR) for _ in range(KEPT_CHANGES)]
    assert last == [{"blue": float(n)} for n in range(KEPT_CHANGES + 1, 1, -1)]
    with pytest.raises(Conflict):
        await one.roll_back("demo", actor=ACTOR)


async def test_changes_of_several_processes_at_once_are_all_kept_and_a_later_one_knows_them(
    both, opens
):
    addresses = {f"10.0.0.{number}:8001" for number in range(12)}
    one, other = both
    await asyncio.gather(
        *((one, other)[n % 2].drain(each, actor=ACTOR) for n, each in enumerate(addresses))
    )
    await eventually(lambda: one.drained == other.drained == addresses)
    await one.set_weights("demo", {"blue": 1.0}, actor=ACTOR)
    async with opens() as later:
        assert (later.drained, later.weights("demo")) == (addresses, {"blue": 1.0})


async def test_the_store_audits_each_decision_with_before_and_after(store):
    decisions, audit = store.decisions, store.audit
    await decisions.drain(ONE, actor=ACTOR)
    await decisions.drain(ONE, actor=ACTOR)
    await decisions.undrain(ONE, actor="key:other")
    await decisions.set_weights("demo", {"blue": 1.0}, actor=ACTOR)
    await decisions.roll_back("demo", actor=ACTOR)
    names = ("actor", "action", "object", "before", "after")
    found = [tuple(entry[name] for name in names) for entry in await audit.list()]
    here, yes, no = f"endpoints/{ONE}", {"drained": True}, {"drained": False}
    none, blue = {"changes": 0, "weights": None}, {"changes": 1, "weights": {"blue": 1.0}}
    assert found == [
        (ACTOR, "endpoints.drain", here, no, yes),
        ("key:other", "endpoints.undrain", here, yes, no),
        (ACTOR, "deployments.weights", "deployments/demo", none, blue),
        (ACTOR, "deployments.rollback", "deployments/demo", blue, none),
    ]
    generation = await store.keys.generation()
    await store.audit.note("models.load", "models/demo", actor=ACTOR, details={"pools": []})
    assert await store.keys.generation() == generation
    assert (await audit.list())[-1]["after"] == {"pools": []}
    assert (await audit.verify()).ok


async def test_the_store_refuses_text_that_it_cannot_keep(store):
    for call in (
        store.decisions.drain("a\0:1", actor=ACTOR),
        store.decisions.undrain("\ud800:1", actor=ACTOR),
        store.decisions.set_weights("\0", {"a": 1.0}, actor=ACTOR),
    ):
        with pytest.raises(InvalidRequest):
            await call
    with pytest.raises(Conflict):
        await store.decisions.roll_back("\0", actor=ACTOR)
