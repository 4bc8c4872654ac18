from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from proxy.domain.endpoints import EndpointState
from proxy.pools.pool_set import counted_states

READY, EJECTED = EndpointState.READY, EndpointState.EJECTED


@dataclass
class OneEndpoint:
    state: EndpointState


@dataclass
class OnePool:
    endpoints: dict[str, OneEndpoint] = field(default_factory=dict)


class Counts:
    """An EndpointCounter of which only `counted` is called."""

    def __init__(self) -> None:
        self.last: dict[str, dict[EndpointState, int]] = {}
        self.all_counted = asyncio.Event()

    def counted(self, pool: str, endpoints: Mapping[EndpointState, int]) -> None:
        self.last[pool] = dict(endpoints)
        if pool == "empty":
            self.all_counted.set()


@pytest.mark.anyio
async def test_each_pool_is_counted_by_state_at_once_and_an_empty_one_as_well():
    states = {"a:1": READY, "b:1": READY, "c:1": EJECTED}
    pools = {
        "west": OnePool({name: OneEndpoint(state) for name, state in states.items()}),
        "empty": OnePool(),
    }
    counts = Counts()
    async with counted_states(pools, counts):
        await counts.all_counted.wait()
    assert counts.last == {"west": {READY: 2, EJECTED: 1}, "empty": {}}


@pytest.mark.anyio
async def test_a_change_is_counted_and_the_end_of_the_body_ends_it():
    pool = OnePool({"a:1": OneEndpoint(READY)})
    counts = Counts()
    before = asyncio.all_tasks()
    async with counted_states({"empty": pool}, counts):
        await counts.all_counted.wait()
        pool.endpoints["a:1"].state = EJECTED
        counts.all_counted.clear()
        await counts.all_counted.wait()
        assert counts.last["empty"] == {EJECTED: 1}
    assert asyncio.all_tasks() == before
