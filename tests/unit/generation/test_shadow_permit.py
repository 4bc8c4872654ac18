"""shadow: copies take free rows only, and give them back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from proxy.domain.errors import RateLimited
from proxy.domain.scheduling import FreePermit, Ticket
from proxy.domain.shadow import ShadowOutcome
from proxy.generation.shadow import LOWEST_PRIORITY, ShadowTraffic, permitted
from tests.doubles.engine import ScriptedEngine, deltas
from tests.unit.generation.test_shadow import SHADOW, Traffic, asked, text

pytestmark = pytest.mark.anyio


class OneRow(FreePermit):
    """A scheduler with one row, and its permit."""

    def __init__(self, *, is_free: bool = True) -> None:
        self.is_free = is_free
        self.tickets: list[Ticket] = []
        self.preempted: Callable[[], None] = lambda: None
        self.tokens: Callable[[], int] = lambda: 0

    async def acquire(self, ticket, *, moved, preempted) -> OneRow:
        self.tickets.append(ticket)
        if not self.is_free:
            raise RateLimited("The queue is full.")
        self.is_free, self.preempted = False, preempted
        return self

    def meter(self, tokens) -> None:
        self.tokens = tokens

    def release(self) -> None:
        self.is_free = True


class QueuedTraffic(Traffic):
    def __init__(self, copies: ScriptedEngine, scheduler: OneRow) -> None:
        super().__init__(copies)
        self.scheduler = scheduler
        self.shadows = ShadowTraffic(self._open, self, draw=lambda: 0.0)

    def _open(self, request, deployment):
        assert deployment == SHADOW.deployment
        return permitted(request, self.copies, self.scheduler)


async def test_a_copy_has_the_lowest_class_a_tenant_of_its_own_and_no_patience():
    scheduler = OneRow()
    answer = permitted(asked(), ScriptedEngine(deltas("abc")), scheduler)
    assert await text(answer) == b"abc"
    (ticket,) = scheduler.tickets
    assert (ticket.queue, ticket.priority, ticket.patience_s) == ("default/m", LOWEST_PRIORITY, 0)
    assert ticket.may_yield
    assert ticket.tenant == "(shadow)"
    assert scheduler.is_free
    assert scheduler.tokens() == sum(len(each.token_bytes) for each in deltas("abc"))


async def test_without_a_free_row_a_copy_is_dropped_and_the_caller_does_not_notice():
    traffic = QueuedTraffic(ScriptedEngine(deltas("same")), OneRow(is_free=False))
    async with traffic.shadows:
        assert await text(traffic.mirrored(deltas("same"))) == b"same"
        assert (await traffic.result()).outcome is ShadowOutcome.DROPPED
    assert traffic.copies.requests == []


async def test_a_copy_gives_its_row_to_another_class():
    traffic = QueuedTraffic(ScriptedEngine(deltas("sa"), hangs=True), OneRow())
    async with traffic.shadows:
        assert await text(traffic.mirrored(deltas("same"))) == b"same"
        await asyncio.wait_for(traffic.copies.given.wait(), 30)
        traffic.scheduler.preempted()
        assert (await traffic.result()).outcome is ShadowOutcome.ABANDONED
        assert traffic.scheduler.is_free
    assert traffic.copies.closed_early == 1
