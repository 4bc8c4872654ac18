"""Streams of a model that no endpoint serves: how many wait, for how long, and who goes first."""

from __future__ import annotations

import pytest

from proxy.domain.scheduling import Ticket
from proxy.scheduling.fair_queue import FairQueue, Refusal, RefusedByQueue
from proxy.scheduling.stream import State
from proxy.settings.streams import Scheduling
from tests.doubles.queued_stream import Clock, QueuedStream

MB = 1_000_000


class Asleep:
    """A queue without an endpoint, of which `given` are the settings."""

    def __init__(self, **given: object) -> None:
        usual = {"hold_timeout_s": 60.0, "queue_timeout_s": 20.0, "held_requests": 4}
        self.clock = Clock()
        self.queue = FairQueue(Scheduling(**{**usual, **given}), self.clock)
        self.queue.set_capacity(0)
        self.log: list[tuple[str, QueuedStream]] = []

    def enter(self, tenant: str = "a", **fields: object) -> QueuedStream:
        stream = QueuedStream(Ticket(queue="q", tenant=tenant, **fields), self.log)
        try:
            self.queue.enter(stream)
        except RefusedByQueue as error:
            stream.error = error
        return stream

    def expired(self, stream: QueuedStream, at: float) -> bool:
        """Whether it is refused, if its timer fires then as it was set."""
        while stream.error is None and stream.deadline <= at:
            self.clock.now = max(self.clock.now, stream.deadline)
            self.queue.expire(stream)
        self.clock.now = at
        return stream.error is not None


def reason(stream: QueuedStream) -> Refusal | None:
    return None if stream.error is None else stream.error.reason


def test_they_wait_even_where_rows_are_unbounded_and_run_when_an_endpoint_comes():
    for streams in (None, 8):
        asleep = Asleep()
        held = [asleep.enter(tenant) for tenant in "aabb"]
        assert [one.state for one in held] == [State.WAITING] * 4
        assert [one.standings[-1].wait_s for one in held] == [None] * 4
        asleep.queue.set_capacity(streams)
        assert [one.state for one in held] == [State.RUNNING] * 4
        granted = [one for event, one in asleep.log if event == "granted"]
        for tenant in "ab":
            own = [one for one in granted if one.ticket.tenant == tenant]
            assert own == [one for one in held if one.ticket.tenant == tenant]


@pytest.mark.parametrize(
    ("given", "patience_s", "over_at"),
    [
        ({}, None, 60.0),
        ({"hold_timeout_s": 3.0}, None, 3.0),
        ({}, 5.0, 5.0),
        ({}, 300.0, 60.0),
    ],
)
def test_they_wait_as_long_as_the_setting_and_the_request_let_them(given, patience_s, over_at):
    asleep = Asleep(**given)
    stream = asleep.enter(patience_s=patience_s)
    assert not asleep.expired(stream, over_at - 0.01)
    assert asleep.expired(stream, over_at)
    assert "server" in stream.error.message


@pytest.mark.parametrize("given", [{"hold_timeout_s": 0.0}, {}])
def test_without_patience_they_are_refused_at_once(given):
    asleep = Asleep(**given)
    stream = asleep.enter(patience_s=0.0 if not given else None)
    assert stream.error is not None
    assert asleep.queue.waiting == 0


def test_an_endpoint_that_comes_late_leaves_them_the_usual_time_and_one_that_goes_the_longer_one():
    asleep = Asleep()
    held = [asleep.enter() for _ in range(3)]
    asleep.clock.now = 59.0
    asleep.queue.set_capacity(1)
    assert [one.state for one in held] == [State.RUNNING, State.WAITING, State.WAITING]
    assert not asleep.expired(held[1], 78.9)
    assert asleep.expired(held[1], 79.0)
    new = asleep.enter()
    asleep.queue.set_capacity(0)
    assert not asleep.expired(new, 79.0 + 59.9)
    assert asleep.expired(new, 79.0 + 60.0)


# Tenant and megabytes of each request in turn -> the outcome of each at the end.
BOUNDS = [
    ("aaaaa", (0,) * 5, "....F"),
    ("aaaab", (0,) * 5, "...D."),
    ("aaaabb", (0,) * 6, "..DD.."),
    ("aaaabbb", (0,) * 7, "..DD..F"),
    ("aa", (6, 6), ".F"),
    ("ab", (6, 6), ".F"),
    ("aab", (4, 4, 4), ".D."),
    ("aab", (4, 4, 6), "..F"),
    ("aaab", (3, 3, 3, 4), "..D."),
    ("a", (11,), "F"),
]


@pytest.mark.parametrize(("tenants", "sizes", "outcomes"), BOUNDS)
def test_number_and_bytes_are_bounded_and_tenants_share_them(tenants, sizes, outcomes):
    asleep = Asleep(held_mb=10)
    streams = [
        asleep.enter(tenant, prompt_bytes=size * MB)
        for tenant, size in zip(tenants, sizes, strict=True)
    ]
    letters = {None: ".", Refusal.FULL: "F", Refusal.DISPLACED: "D"}
    assert "".join(letters[reason(one)] for one in streams) == outcomes
    assert asleep.queue.waiting == outcomes.count(".")


def test_those_that_were_held_are_not_displaced_when_an_endpoint_has_come():
    asleep = Asleep(held_requests=100)
    held = [asleep.enter("a") for _ in range(99)]
    asleep.queue.set_capacity(1)
    late = asleep.enter("b")
    assert [one.error for one in (*held, late)] == [None] * 100


def test_no_running_stream_makes_room_while_no_endpoint_could_take_another():
    asleep = Asleep()
    asleep.queue.set_capacity(1)
    running = asleep.enter("a", may_yield=True)
    asleep.queue.set_capacity(0)
    urgent = asleep.enter("b", priority=9)
    asleep.queue.rearrange()
    assert not running.was_preempted
    assert (running.state, urgent.state) == (State.RUNNING, State.WAITING)
