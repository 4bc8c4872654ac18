"""A tenant that has had no more than others is forgotten when it idles; one that owes is not."""

from __future__ import annotations

from itertools import count

from proxy.domain.scheduling import Ticket
from proxy.scheduling.priority_class import IDLE_TENANTS, PriorityClass
from tests.doubles.queued_stream import QueuedStream

numbers = count(1)


def stream(tenant: str, prompt_tokens: int = 0) -> QueuedStream:
    made = QueuedStream(Ticket(queue="q", tenant=tenant, prompt_tokens=prompt_tokens), [])
    made.number = next(numbers)
    return made


def serve(of_class: PriorityClass, tenant: str, prompt_tokens: int) -> None:
    """A stream that waits, runs and ends."""
    served = stream(tenant, prompt_tokens)
    of_class.enter(served)
    assert of_class.next is served
    of_class.take(served, now=0.0)
    of_class.end(served, now=0.0)


def test_one_that_owes_is_remembered():
    of_class = PriorityClass()
    of_class.begin(stream("other"))
    serve(of_class, "greedy", 150)
    serve(of_class, "busy", 100)
    assert of_class.shares["greedy"].counter == 150
    of_class.begin(stream("greedy"))
    assert of_class.shares["greedy"].counter == 150


def test_as_many_idle_tenants_are_remembered_as_have_room():
    of_class = PriorityClass()
    of_class.begin(stream("other"))
    for number in range(IDLE_TENANTS + 10):
        serve(of_class, f"t{number}", 150)
    assert len(of_class.shares) == 1 + IDLE_TENANTS
    assert "t0" not in of_class.shares
