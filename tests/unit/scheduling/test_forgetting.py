"""A tenant that has had no more than others is forgotten when it idles; one that owes is not."""

from __future__ import annotations

from itertools import count

from proxy.domain.scheduling import Ticket
from proxy.scheduling.priority_class import PriorityClass
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


def test_one_that_comes_back_begins_as_a_new_one_does():
    of_class = PriorityClass()
    of_class.begin(stream("other"))  # so that the class is never idle
    serve(of_class, "early", 0)
    for _ in range(3):
        serve(of_class, "busy", 100)
    for tenant in ("early", "new"):
        of_class.begin(stream(tenant))
    assert of_class.shares["early"].counter == of_class.shares["new"].counter == 200


def test_one_that_owes_is_remembered_until_the_others_have_had_as_much():
    of_class = PriorityClass()
    of_class.begin(stream("other"))
    serve(of_class, "greedy", 150)
    serve(of_class, "busy", 100)
    assert of_class.shares["greedy"].counter == 150
    for _ in range(2):
        serve(of_class, "busy", 100)
    assert "greedy" not in of_class.shares


def test_one_that_owes_is_forgotten_when_the_least_that_waits_has_gone():
    of_class = PriorityClass()
    of_class.begin(stream("other"))
    small = stream("small")
    of_class.enter(small)
    of_class.charge(small, -5)
    large = stream("large")
    of_class.enter(large)
    of_class.charge(large, 200)
    back = stream("back")
    of_class.begin(back)
    of_class.charge(back, 50)
    of_class.end(back, now=0.0)
    assert of_class.shares["back"].counter == 45
    of_class.leave(small, now=0.0)
    assert "back" not in of_class.shares
