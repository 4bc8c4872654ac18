"""Engine streams and the fair queue: what they ask for, hold, report, and give way to."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from proxy.domain.completion import fold
from proxy.domain.errors import DeadlineExceeded, EngineFailed, RateLimited
from proxy.domain.identity import ALL_SCOPES, Caller, current_caller
from proxy.domain.interrupt import Cause
from proxy.domain.request import Delivery, GenerationRequest, Sampling, TextPrompt
from proxy.domain.scheduling import Standing
from tests.doubles.dying_engine import DyingEngine
from tests.doubles.engine import CAPABILITIES, FixedCatalog
from tests.fixtures.lost_triton import Stand
from tests.unit.generation.scheduler import GivenScheduler
from tests.unit.generation.test_failover import TEXT, Held

pytestmark = pytest.mark.anyio

ASKED = GenerationRequest(id="r1", model="demo", prompt=TextPrompt(text="x" * 40))


async def served(engine: DyingEngine, **fields: object) -> tuple[Stand, GivenScheduler]:
    scheduler = GivenScheduler()
    stand = Stand(engine, scheduler=scheduler, **fields)
    await stand.look()
    return stand, scheduler


async def turns(count: int = 20) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_a_ticket_says_who_wants_which_rows():
    stand, scheduler = await served(DyingEngine(TEXT))
    current_caller.set(Caller(tenant="t", key_id="k", scopes=ALL_SCOPES, weight=3.0))
    await stand.begin(
        prompt=TextPrompt(text="x" * 40), priority=None, queue_patience_s=2.0, caller="1.2.3.4"
    )
    (ticket,) = scheduler.tickets
    assert (ticket.queue, ticket.tenant, ticket.weight) == ("default/demo", "t", 3.0)
    assert (ticket.priority, ticket.prompt_tokens, ticket.patience_s) == (0, 10, 2.0)
    assert (ticket.has_begun, ticket.may_yield) == (False, True)


async def test_callers_that_share_one_identity_are_tenants_by_their_address():
    stand, scheduler = await served(DyingEngine(TEXT))
    await stand.begin(caller="1.2.3.4", priority=-2)
    assert (scheduler.tickets[0].tenant, scheduler.tickets[0].priority) == ("1.2.3.4", -2)


async def test_every_choice_has_a_permit_that_is_charged_and_given_back():
    stand, scheduler = await served(DyingEngine(TEXT))
    await stand.begin(choices=3)
    assert [one.tokens for one in scheduler.permits] == [len(TEXT) + 1] * 3
    assert [one.uncached for one in scheduler.permits] == [[1]] * 3
    assert scheduler.held == 0


@pytest.mark.parametrize("death", [EngineFailed("it broke"), ValueError("a bug")])
async def test_a_permit_is_given_back_whatever_happens(death):
    stand, scheduler = await served(DyingEngine(TEXT, cut=3, death=lambda: death))
    with pytest.raises(type(death)):
        await stand.begin()
    assert (len(scheduler.permits), scheduler.held) == (1, 0)


@pytest.mark.parametrize("after", [0, 3])
async def test_a_client_that_disconnects_gives_it_back(after):
    stand, scheduler = await served(engine := Held(after))
    task = stand.begin()
    await engine.is_held.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (len(scheduler.permits), scheduler.held, engine.running) == (1, 0, 0)


async def test_a_stream_that_waits_again_has_waited_both_times():
    async def wait(scheduler: GivenScheduler) -> None:
        await turns()
        scheduler.waiting[0](Standing(1, None))
        await asyncio.sleep(0.01)
        scheduler.is_open.set()

    stand, scheduler = await served(engine := Held(3))
    scheduler.is_open.clear()
    task = stand.begin(priority=1)
    await wait(scheduler)
    await engine.is_held.wait()
    first_s = stand.records[0].queue_s
    scheduler.is_open.clear()
    scheduler.permits[0].preempt()
    await wait(scheduler)
    engine.may_go_on.set()
    await task
    assert stand.records[0].queue_s > first_s > 0


async def test_of_several_choices_the_best_that_waits_says_where_the_request_stands():
    stand, scheduler = await served(DyingEngine(TEXT))
    scheduler.is_open.clear()
    generation = stand.service.generate(
        replace(ASKED, choices=3), stand.registry.model("demo").cards[0], Delivery.LIVE
    )
    report = generation.record
    first = asyncio.ensure_future(anext(generation.events))
    await turns()
    one, two, three = scheduler.waiting
    for moved, position in ((one, 4), (two, 5), (three, 6)):
        moved(Standing(position, None))
    since = report.queued_since
    one(Standing(1, None))
    assert report.queued == Standing(1, None)
    scheduler.grant(one)
    await first
    assert report.queued == Standing(5, None)
    assert report.queued_since >= since
    two(Standing(1, None))
    assert report.queued == Standing(1, None)
    scheduler.is_open.set()
    async for _ in generation.events:
        pass
    assert report.queued is report.queued_since is None


async def test_a_refusal_is_the_requests_and_the_wait_has_the_requests_time():
    stand, scheduler = await served(engine := DyingEngine(TEXT), whole_s=0.05)
    scheduler.refusal = RateLimited("full")
    with pytest.raises(RateLimited, match="full"):
        await stand.begin()
    scheduler.refusal = None
    scheduler.is_open.clear()
    with pytest.raises(DeadlineExceeded):
        await stand.begin(id="r2")
    assert not engine.requests
    assert not scheduler.waiting
    assert stand.admission.running == 0


async def test_a_permit_is_kept_while_a_stream_continues_after_a_loss():
    engine = DyingEngine(TEXT, cut=3)
    stand, scheduler = await served(engine)
    engine.another = False
    task = stand.begin()
    await stand.waiting()
    assert (len(scheduler.permits), scheduler.held) == (1, 1)
    await stand.back()
    assert fold(await task).text == TEXT
    (permit,) = scheduler.permits
    assert (permit.tokens, permit.uncached, scheduler.held) == (len(TEXT) + 1, [1], 0)


@pytest.mark.parametrize("after", [0, 1, 5])
async def test_a_preempted_stream_returns_to_the_queue_and_continues(after):
    stand, scheduler = await served(engine := Held(after))
    task = stand.begin(priority=1)
    await engine.is_held.wait()
    scheduler.is_open.clear()
    scheduler.permits[0].preempt()
    await turns()
    assert (scheduler.held, engine.running, len(scheduler.waiting)) == (0, 0, 1)
    assert not task.done()
    assert scheduler.permits[0].tokens == after
    engine.may_go_on.set()
    scheduler.is_open.set()
    assert fold(await task).text == TEXT
    first, second = scheduler.permits
    assert second.ticket == replace(first.ticket, has_begun=True, prompt_tokens=0, may_yield=True)
    assert second.tokens == len(TEXT) + 1 - after
    assert engine.requests[1].id == "r1-continued1"
    assert len(engine.requests[1].generated) == after
    assert stand.causes == [Cause.PREEMPTED]
    assert scheduler.held == 0


async def test_a_preempted_stream_whose_reader_is_slow_stops_with_its_next_read():
    stand, scheduler = await served(engine := DyingEngine(TEXT))
    events = stand.service.generate(ASKED, stand.registry.model("demo").cards[0]).events
    found = [await anext(events)]
    scheduler.permits[0].preempt()
    found += [event async for event in events]
    assert fold(found).text == TEXT
    assert [len(one.generated) for one in engine.requests] == [0, 1]


async def test_it_yields_each_time_that_it_is_told_to():
    stand, scheduler = await served(engine := DyingEngine(TEXT))
    report = None
    generation = stand.service.generate(ASKED, stand.registry.model("demo").cards[0])
    report, found = generation.record, []
    async for event in generation.events:
        found.append(event)
        if len(scheduler.permits) <= 5:
            scheduler.permits[-1].preempt()
    assert fold(found).text == TEXT
    assert [one.ticket.has_begun for one in scheduler.permits] == [False, *[True] * 5]
    assert all(one.ticket.may_yield for one in scheduler.permits)
    assert (report.preempted, report.continued, len(engine.requests)) == (5, 5, 6)
    assert report.notes == [f"continued {number} (preempted)" for number in range(1, 6)]


async def test_preempted_while_it_waits_for_triton_it_yields_before_it_is_sent_again():
    engine = DyingEngine(TEXT, cut=3)
    stand, scheduler = await served(engine)
    engine.another = False
    task = stand.begin()
    await stand.waiting()
    scheduler.permits[0].preempt()
    await stand.back()
    assert fold(await task).text == TEXT
    assert len(engine.requests) == 2
    assert [one.releases for one in scheduler.permits] == [1, 1]


async def test_what_cannot_be_continued_exactly_keeps_its_row():
    catalog = FixedCatalog(capabilities=CAPABILITIES - {"resume"})
    stand, scheduler = await served(DyingEngine(TEXT), catalog=catalog)
    await stand.begin(sampling=Sampling(seed=5))
    await stand.begin(id="r2")
    assert [one.may_yield for one in scheduler.tickets] == [False, True]


@pytest.mark.parametrize(("asked", "sent"), [(None, 1), (0, 1), (-3, -2)])
async def test_what_took_over_a_row_goes_before_its_class_until_it_yields(asked, sent):
    stand, scheduler = await served(engine := Held(3))
    scheduler.takes_over = True
    task = stand.begin(priority=asked)
    await engine.is_held.wait()
    scheduler.permits[0].preempt()
    await turns()
    engine.may_go_on.set()
    assert fold(await task).text == TEXT
    assert [one.priority for one in engine.requests] == [sent, asked]
