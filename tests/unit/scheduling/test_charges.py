"""What a tenant pays for, and what it does not."""

from __future__ import annotations

import asyncio

import pytest

from tests.fixtures.schedulers import QUEUE, Caller, scheduling, settled, ticket

pytestmark = pytest.mark.anyio


async def test_a_cancelled_stream_costs_its_tenant_nothing():
    async with scheduling() as scheduler:
        first = Caller(scheduler, ticket("z"))
        await settled()
        gone = Caller(scheduler, ticket("a", prompt_tokens=100_000))
        spare = Caller(scheduler, ticket("a", prompt_tokens=1))
        other = [Caller(scheduler, ticket("b", prompt_tokens=100)) for _ in range(2)]
        await settled()
        first.release()  # grants it, in the same turn in which it is cancelled
        gone.task.cancel()
        await settled()
        running = [each for each in (gone, spare, *other) if each.runs]
        assert len(running) == 1
        running[0].release()
        await settled()
        assert spare.runs


async def test_tokens_are_charged_while_they_stream():
    async with scheduling() as scheduler:
        first = Caller(scheduler, ticket("a"))
        own = [Caller(scheduler, ticket("a")) for _ in range(2)]
        others = [Caller(scheduler, ticket("b")) for _ in range(2)]
        await settled()
        first.tokens = 10
        await asyncio.sleep(0.3)
        scheduler.set_capacity(QUEUE, 2)
        await settled()
        assert others[0].runs
        assert not own[0].runs


async def test_a_resumed_stream_pays_its_tokens_once():
    async with scheduling() as scheduler:
        first = Caller(scheduler, ticket("z"))
        own = [Caller(scheduler, ticket("a", has_begun=True)), Caller(scheduler, ticket("a"))]
        own[0].tokens = 1_000_000  # generated with an earlier permit
        others = [Caller(scheduler, ticket("b", prompt_tokens=10)) for _ in range(2)]
        await settled()
        for running, following in ((first, own[0]), (own[0], own[1]), (own[1], others[0])):
            running.release()
            await settled()
            assert following.runs, following


async def test_a_cached_prompt_costs_what_the_engine_says():
    async with scheduling() as scheduler:
        first = Caller(scheduler, ticket("z"))
        own = [Caller(scheduler, ticket("a", prompt_tokens=5_000)) for _ in range(2)]
        others = [Caller(scheduler, ticket("b", prompt_tokens=10)) for _ in range(3)]
        await settled()
        first.release()
        await settled()
        assert own[0].runs
        own[0].task.result().see_prompt(uncached_tokens=5)
        own[0].release()
        await settled()
        assert others[0].runs
        others[0].release()
        await settled()
        assert own[1].runs
