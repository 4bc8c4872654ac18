"""What operators see of the queues."""

from __future__ import annotations

import pytest

from proxy.domain.errors import RateLimited
from proxy.domain.scheduling import TenantState, Ticket
from proxy.scheduling.fair_queue import FairQueue
from proxy.settings.streams import Scheduling
from tests.doubles.queued_stream import Clock, QueuedStream
from tests.fixtures.schedulers import QUEUE, Caller, scheduling, settled, ticket


@pytest.mark.anyio
async def test_a_tenants_streams_of_all_classes_are_counted_together():
    async with scheduling(capacity=2) as scheduler:
        for priority in (0, 1, 0, 1, 0):
            Caller(scheduler, ticket("acme", priority=priority))
            await settled()
        Caller(scheduler, ticket("small", weight=0.5))
        await settled()
        (state,) = scheduler.states(tenants=9)
        assert state.tenants == (
            TenantState(tenant="acme", weight=1.0, running=2, waiting=3),
            TenantState(tenant="small", weight=0.5, running=0, waiting=1),
        )
        assert state.tenants_in_all == 2
        (state,) = scheduler.states(tenants=1)
        assert [one.tenant for one in state.tenants] == ["acme"]
        assert state.tenants_in_all == 2


@pytest.mark.parametrize(
    ("queue_length", "capacity", "places"), [(7, 2, 7), (None, 2, 32), (None, 0, 0), (0, 1, 0)]
)
def test_places_may_depend_on_the_capacity(queue_length, capacity, places):
    queue = FairQueue(Scheduling(queue_length=queue_length), Clock())
    queue.set_capacity(capacity)
    for _ in range(capacity + places):
        queue.enter(QueuedStream(Ticket(queue=QUEUE, tenant="a")))
    with pytest.raises(RateLimited):
        queue.enter(QueuedStream(Ticket(queue=QUEUE, tenant="a")))
    assert queue.waiting == places
