"""What holds of the queue whatever happens in whatever order."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from proxy.domain.scheduling import Ticket
from proxy.scheduling.fair_queue import FairQueue, RefusedByQueue
from proxy.scheduling.stream import State
from proxy.settings.streams import Scheduling
from tests.doubles.queued_stream import Clock, QueuedStream

tickets = st.builds(
    Ticket,
    queue=st.just("q"),
    tenant=st.sampled_from("abcd"),
    weight=st.sampled_from([0.5, 1.0, 2.0]),
    priority=st.sampled_from([0, 0, 0, 1, 5]),
    prompt_tokens=st.integers(0, 20) | st.integers(0, 40_000),
    patience_s=st.sampled_from([None, None, None, 0.0]),
    has_begun=st.sampled_from([False, False, False, True]),
    may_yield=st.booleans(),
    engine_takes_priority=st.booleans(),
)
picks = st.integers(0, 1_000)


class Queue(RuleBasedStateMachine):
    @initialize(
        waiting=st.integers(0, 8),
        rows=st.integers(0, 4),
        spare=st.integers(0, 2),
        fair=st.booleans(),
    )
    def begin(self, waiting: int, rows: int, spare: int, fair: bool) -> None:
        self.settings = Scheduling(queue_length=waiting, fair_preemption=fair)
        self.clock = Clock()
        self.streams: list[QueuedStream] = []
        self.queue = FairQueue(self.settings, self.clock)
        self.queue.set_capacity(rows, spare)

    def those(self, state: State) -> list[QueuedStream]:
        return [each for each in self.streams if each.state is state]

    @rule(ticket=tickets)
    def enter(self, ticket: Ticket) -> None:
        stream = QueuedStream(ticket)
        try:
            self.queue.enter(stream)
        except RefusedByQueue as error:
            stream.error = error
        if stream.error is None:
            self.streams.append(stream)
        else:
            assert stream.error.retry_after_s > 0
            assert not ticket.has_begun

    @rule(tenants=st.sampled_from(["ab", "ba", "aab", "bbbac"]), may_yield=st.booleans())
    def enter_several(self, tenants: str, may_yield: bool) -> None:
        """Alike but for their tenants, so that some are below their share, and may take a row."""
        for tenant in tenants:
            self.enter(Ticket(queue="q", tenant=tenant, may_yield=may_yield))

    @rule(pick=picks)
    def leave(self, pick: int) -> None:
        for stream in self.streams[pick % (len(self.streams) + 1) :][:1]:
            self.queue.leave(stream)

    @precondition(lambda self: self.those(State.RUNNING))
    @rule(pick=picks)
    def release(self, pick: int) -> None:
        running, waited = self.those(State.RUNNING), self.those(State.WAITING)
        self.queue.release(running[pick % len(running)])
        begun = [each.ticket.priority for each in waited if each.state is State.RUNNING]
        left = [each.ticket.priority for each in waited if each.state is State.WAITING]
        assert not begun or not left or min(begun) >= max(left)

    @precondition(lambda self: self.those(State.RUNNING))
    @rule(pick=picks, tokens=st.integers(1, 30))
    def generate(self, pick: int, tokens: int) -> None:
        running = self.those(State.RUNNING)
        stream = running[pick % len(running)]
        self.clock.now += 1
        self.queue.charge(stream, stream.tokens + tokens)

    @precondition(lambda self: self.those(State.RUNNING))
    @rule(pick=picks, uncached_tokens=st.integers(0, 50))
    def see_prompt(self, pick: int, uncached_tokens: int) -> None:
        running = self.those(State.RUNNING)
        self.queue.see_prompt(running[pick % len(running)], uncached_tokens)

    @rule()
    def rearrange(self) -> None:
        self.queue.rearrange()

    @rule(rows=st.one_of(st.none(), st.integers(0, 6)), spare=st.integers(0, 2))
    def set_capacity(self, rows: int | None, spare: int) -> None:
        self.queue.set_capacity(rows, spare)

    @invariant()
    def nobody_waits_where_a_place_is_free(self) -> None:
        running, waiting = self.those(State.RUNNING), self.those(State.WAITING)
        assert (self.queue.running, self.queue.waiting) == (len(running), len(waiting))
        kept = [each for each in running if not each.was_preempted]
        if waiting:
            assert self.queue.capacity is not None
            assert len(kept) >= self.queue.capacity
        assert all(each.ticket.may_yield for each in running if each.was_preempted)

    @invariant()
    def no_more_wait_than_have_places(self) -> None:
        tickets = [each.ticket for each in self.those(State.WAITING) if not each.ticket.has_begun]
        assert len(tickets) <= self.settings.queue_length

    @invariant()
    def positions_are_the_order_of_service(self) -> None:
        for _ in self.queue.standings():
            pass
        waiting = sorted(self.those(State.WAITING), key=lambda each: each.position)
        assert [each.position for each in waiting] == list(range(1, len(waiting) + 1))
        priorities = [each.ticket.priority for each in waiting]
        assert priorities == sorted(priorities, reverse=True)

    def teardown(self) -> None:
        for stream in self.streams:
            self.queue.leave(stream)
        assert (self.queue.running, self.queue.waiting) == (0, 0)


Queue.TestCase.settings = settings(stateful_step_count=60, deadline=None)
test_queue = Queue.TestCase
