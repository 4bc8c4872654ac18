"""What a caller sees of the queue."""

from __future__ import annotations

import asyncio

import pytest

from proxy.domain.errors import ErrorCode, RateLimited
from tests.fixtures.schedulers import QUEUE, Caller, scheduling, settled, ticket

pytestmark = pytest.mark.anyio


async def test_streams_of_one_tenant_run_in_their_order():
    async with scheduling() as scheduler:
        callers = [Caller(scheduler, ticket()) for _ in range(4)]
        await settled()
        for number, caller in enumerate(callers):
            assert [each.runs for each in callers] == [n <= number for n in range(4)]
            caller.release()
            caller.release()  # a second time does nothing
            await settled()


async def test_tenants_take_turns_and_a_higher_class_goes_first():
    async with scheduling() as scheduler:
        first = Caller(scheduler, ticket())
        many = [Caller(scheduler, ticket("a", prompt_tokens=10)) for _ in range(3)]
        few = [Caller(scheduler, ticket("b", prompt_tokens=10)) for _ in range(2)]
        high = Caller(scheduler, ticket("a", priority=1))
        await settled()
        running = first
        for caller in (high, many[0], few[0], many[1], few[1], many[2]):
            assert not caller.runs
            running.release()
            await settled()
            assert caller.runs
            running = caller


async def test_a_permit_says_whether_its_stream_took_over_a_row():
    async with scheduling() as scheduler:
        lower = [Caller(scheduler, ticket(may_yield=True)) for _ in range(2)]
        await settled()
        higher = Caller(scheduler, ticket("b", priority=1))
        await settled()
        permits = [caller.task.result() for caller in (lower[0], higher)]
        assert [permit.took_over for permit in permits] == [False, True]
        assert lower[0].preempted
        lower[0].release()
        higher.release()
        await settled()
        assert not lower[1].task.result().took_over


async def test_without_a_bound_nobody_waits():
    async with scheduling(capacity=None) as scheduler:
        callers = [Caller(scheduler, ticket(patience_s=0)) for _ in range(50)]
        await settled(200)
        assert all(caller.runs for caller in callers)
        scheduler.set_capacity(QUEUE, 50)  # nothing is stopped
        last = Caller(scheduler, ticket())
        await settled()
        assert not last.runs
        scheduler.set_capacity(QUEUE, None)
        await settled()
        assert last.runs


async def test_a_full_queue_refuses_with_a_retry_after():
    async with scheduling(places=2) as scheduler:
        callers = [Caller(scheduler, ticket()) for _ in range(4)]
        await settled()
        error = callers[3].error
        assert isinstance(error, RateLimited)
        assert error.code is ErrorCode.QUEUE_FULL
        assert 0 < error.retry_after_s < 1_000
        assert "room for 2 requests" in error.message
        callers[0].release()
        await settled()
        assert callers[1].runs  # the refused one has left nothing behind


async def test_a_tenant_with_fewer_streams_takes_a_place_of_the_one_with_most():
    async with scheduling(places=4) as scheduler:
        callers = [Caller(scheduler, ticket("a")) for _ in range(5)]
        await settled()
        other = Caller(scheduler, ticket("b"))
        await settled()
        assert isinstance(callers[4].error, RateLimited)
        assert [caller.error for caller in callers[:4]] == [None] * 4
        again = Caller(scheduler, ticket("a"))
        await settled()
        assert isinstance(again.error, RateLimited)
        assert other.error is None


async def test_streams_that_have_begun_go_first_and_are_never_refused():
    async with scheduling(places=1) as scheduler:
        first = Caller(scheduler, ticket())
        new = Caller(scheduler, ticket())
        begun = [Caller(scheduler, ticket(has_begun=True, patience_s=0)) for _ in range(3)]
        await settled()
        assert new.error is None
        running = first
        for caller in (*begun[::-1], new):  # the last one to come goes to the front
            running.release()
            await settled()
            assert caller.runs
            running = caller


async def test_no_patience_fails_fast_and_a_short_one_ends():
    async with scheduling() as scheduler:
        first = Caller(scheduler, ticket())
        await settled()
        none = Caller(scheduler, ticket(patience_s=0))
        short = Caller(scheduler, ticket(patience_s=0.01))
        await settled()
        assert isinstance(none.error, RateLimited)
        assert not none.standings
        with pytest.raises(RateLimited, match="as long as it may"):
            await short.task
        assert first.runs


async def test_those_that_wait_learn_their_position():
    async with scheduling() as scheduler:
        callers = [Caller(scheduler, ticket()) for _ in range(3)]
        await settled()
        assert [[each.position for each in one.standings] for one in callers] == [[], [1], [2]]
        assert all(0 < one.standings[0].wait_s < 100 for one in callers[1:])
        callers[0].release()
        while len(callers[2].standings) < 2:  # noqa: ASYNC110  (there is no event)
            await asyncio.sleep(0.01)
        assert callers[2].standings[1].position == 1
        assert len(callers[1].standings) == 1


async def test_a_higher_class_runs_at_once_and_the_newest_of_the_lowest_yields():
    async with scheduling(capacity=3) as scheduler:
        low = [Caller(scheduler, ticket("a", may_yield=True)) for _ in range(2)]
        middle = Caller(scheduler, ticket("b", priority=1, may_yield=True))
        waits = Caller(scheduler, ticket("c"))
        await settled()
        high = [Caller(scheduler, ticket("d", priority=2, patience_s=0)) for _ in range(4)]
        await settled()
        assert [caller.runs for caller in high] == [True, True, True, False]
        assert [each.preempted for each in (*low, middle)] == [1, 1, 1]
        assert isinstance(high[3].error, RateLimited)
        for caller in (*low, middle):  # their rows are taken already
            caller.release()
        await settled()
        assert not waits.runs
        high[0].release()
        await settled()
        assert waits.runs


async def test_only_lower_classes_that_may_yield_do():
    async with scheduling(capacity=2) as scheduler:
        fixed = Caller(scheduler, ticket())
        same = Caller(scheduler, ticket(priority=1, may_yield=True))
        await settled()
        high = Caller(scheduler, ticket(priority=1))
        await settled()
        assert not high.runs
        assert not fixed.preempted
        assert not same.preempted


@pytest.mark.parametrize("turns", range(12))
async def test_a_caller_that_is_cancelled_at_any_moment_leaves_nothing_behind(turns: int):
    async with scheduling() as scheduler:
        first = Caller(scheduler, ticket())
        await settled()
        gone = Caller(scheduler, ticket("b", prompt_tokens=1_000))
        next_one = Caller(scheduler, ticket("c", prompt_tokens=1))
        for _ in range(turns // 2):
            await asyncio.sleep(0)
        if turns % 2:
            first.release()
        gone.task.cancel()
        await settled()
        if gone.runs:
            gone.release()
        if not turns % 2:
            first.release()
        await settled()
        assert next_one.runs
        next_one.release()
        await settled()
        (state,) = scheduler.states()
        assert (state.running, state.waiting) == (0, 0)


async def test_a_stream_that_yields_does_not_keep_its_row_from_others():
    async with scheduling() as scheduler:
        low = Caller(scheduler, ticket(may_yield=True))
        await settled()
        high, waits = Caller(scheduler, ticket(priority=1)), Caller(scheduler, ticket("b"))
        await settled()
        assert high.runs
        assert not waits.runs
        high.release()  # before the other one has stopped
        await settled()
        assert waits.runs
        low.release()
        last = Caller(scheduler, ticket("b"))
        await settled()
        assert not last.runs
