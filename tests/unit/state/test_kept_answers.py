"""What is kept of finished answers, for how long, and whose make room, in all records."""

from __future__ import annotations

import pytest

from proxy.state.memory_answers import MemoryRecords
from tests.unit.state.answering import Generation, ask, asked, settled, whole
from tests.unit.state.conftest import LIMITS, Pair, relay_of

pytestmark = pytest.mark.anyio


async def test_the_oldest_answers_of_a_tenant_make_room_and_not_those_of_others(pair: Pair):
    generation = Generation(1)
    generation.step(100)
    async with pair(tenant_answers=3) as (one, _):
        await ask(one, generation, asked(tenant="small"))
        for number in range(6):
            await ask(one, generation, asked(f"{number}", tenant="large"))
            await settled(one)
        await ask(one, generation, asked(tenant="small"))
        for number in (3, 4, 5):
            await ask(one, generation, asked(f"{number}", tenant="large"))
        assert generation.runs == 7
        await ask(one, generation, asked("0", tenant="large"))
        assert generation.runs == 8


async def test_the_tenant_with_most_bytes_makes_room_for_all(pair: Pair):
    generation = Generation(1)
    generation.step(200)
    async with pair(kept_bytes=20_000) as (one, _):
        await ask(one, generation, asked(tenant="small"))
        for number in range(60):
            await ask(one, generation, asked(f"{number}", tenant="large"))
            await settled(one)
        assert 0 < await one._records.stored_bytes() <= 20_000
        await ask(one, generation, asked(tenant="small"))
        assert generation.runs == 61


async def test_answers_of_any_size_are_replayed_in_pages(pair: Pair):
    generation = Generation(6_000)
    generation.step(6_000)
    async with pair() as (one, other):
        assert await ask(one, generation) == whole(6_000)
        await settled(one)
        assert await ask(other, generation) == whole(6_000)
        for after in (1, 2_999, 5_999, 6_000):
            assert await ask(other, generation, asked(after=after)) == whole(6_000, after)


async def test_what_has_expired_gives_its_memory_back():
    now = [0.0]
    records = MemoryRecords(LIMITS, clock=lambda: now[0])
    async with relay_of(records) as relay:
        generation = Generation(1)
        generation.step(100)
        for number in range(10):
            now[0] += 1
            await ask(relay, generation, asked(f"{number}", tenant=f"{number % 3}"))
            await settled(relay)
        kept = await records.stored_bytes()
        now[0] = LIMITS.keep_s + 5
        assert await records.stored_bytes() == kept / 2
        now[0] += 5
        assert await records.stored_bytes() == 0
        assert (records._answers, records._tenants) == ({}, {})
