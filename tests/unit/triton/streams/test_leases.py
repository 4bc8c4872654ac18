"""The calls that one connection holds open at the engines of its streams."""

from __future__ import annotations

import asyncio

import pytest
from tritonclient.grpc import service_pb2

from proxy.triton.streams.leases import Leases, LeaseTerms

pytestmark = pytest.mark.anyio
LINGER_S = 0.01


class Calls:
    """What a connection is asked to hold; `has_room` for it, or not."""

    def __init__(self) -> None:
        self.sent, self.ended, self.cancelled = [], [], []
        self.has_room = True
        self.is_cancelled = asyncio.Event()

    def hold(self, request, ended):
        if not self.has_room:
            return None
        self.sent.append(request.id)
        self.ended.append(ended)

        def cancel() -> None:
            self.cancelled.append(request.id)
            self.is_cancelled.set()

        return cancel


def terms(engine: str = "demo_engine") -> LeaseTerms:
    return LeaseTerms(engine, lambda lease: service_pb2.ModelInferRequest(id=lease))


async def test_one_call_holds_the_lease_of_all_streams_at_an_engine():
    calls = Calls()
    held = Leases(calls.hold)
    names = {held.enter(terms()) for _ in range(20)}
    other = held.enter(terms("other_engine"))
    assert calls.sent == [*names, other]
    assert len({*names, other}) == held.calls == 2
    held.close()
    assert (calls.cancelled, held.calls) == (calls.sent, 0)


async def test_a_lease_outlasts_its_streams_for_a_while_and_the_next_gets_another():
    calls = Calls()
    held = Leases(calls.hold, linger_s=LINGER_S)
    held.enter(terms())
    held.leave(terms())
    held.enter(terms())  # before it is let go
    await asyncio.sleep(5 * LINGER_S)
    assert (len(calls.sent), calls.cancelled) == (1, [])
    held.leave(terms())
    await asyncio.wait_for(calls.is_cancelled.wait(), 10)
    assert calls.cancelled == calls.sent
    assert held.enter(terms()) not in calls.cancelled
    assert held.calls == 1


@pytest.mark.parametrize("retry_s", [60, 0])
async def test_an_engine_that_ended_the_call_is_asked_again_later(retry_s):
    calls = Calls()
    held = Leases(calls.hold, retry_s=retry_s)
    first = held.enter(terms())
    calls.ended[0]()
    assert held.calls == 0
    second = held.enter(terms())
    assert second != first, "the engine may count the first as over"
    assert calls.sent == ([first] if retry_s else [first, second])
